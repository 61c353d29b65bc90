"""Keeps a run in one file, from which it goes on bit for bit; :mod:`.checkpoint` saves and loads.

The room imports from ``core`` alone.
"""
