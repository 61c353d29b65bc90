"""Running a model: over arrays, over streams without end, and for several targets at once.

`export` makes functions of a model that run without this library.

May import from `core` to `checkpoints`.
"""
