"""How a run over time is compiled. No model, state or checkpoint knows of it.

May import from `core` to `wrappers`: it lays models out in memory and must know their classes.
"""
