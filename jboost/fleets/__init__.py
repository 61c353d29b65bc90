"""One model for each of very many streams.

May import from `core` to `sweeps`.
"""
