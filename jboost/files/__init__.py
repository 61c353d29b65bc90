"""Reads streams from files, tables, pipes and rows, and writes the predictions of a run.

The room imports from ``core``, and paths from ``checkpoints``. Arrow is loaded when it is needed.
"""
