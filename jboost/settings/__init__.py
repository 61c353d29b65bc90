"""The floats of a model as things to tune: found by name, with their ranges and derivatives.

May import from `core` to `baselines`.
"""
