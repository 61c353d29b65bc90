"""Many streams at once, each with a state of its own.

May import from `core` to `sweeps`.
"""
