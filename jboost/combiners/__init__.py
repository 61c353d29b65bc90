"""Combiners: learners on the m predictions of a booster."""
