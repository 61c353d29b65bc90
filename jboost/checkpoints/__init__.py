"""Keeps a run in one file, from which it goes on bit for bit.

:mod:`.checkpoint` saves and loads; :mod:`.archive` is the file format, :mod:`.atomic` replaces
files safely, :mod:`.description` turns models into JSON and back. It imports from ``core`` alone.
"""
