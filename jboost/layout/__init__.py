"""How states lie in memory while a run is compiled, and when they leave it."""
