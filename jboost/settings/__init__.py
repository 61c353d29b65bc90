"""The settings of a model, its floats: found by name, with their ranges and their derivatives.

May import from `core` to `baselines`.
"""
