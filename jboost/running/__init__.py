"""Running a model: over arrays, over streams without end, and for several targets at once.

May import from `core` to `checkpoints`.
"""
