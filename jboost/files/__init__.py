"""Reads streams from files, tables, pipes and rows, and writes the predictions of a run.

:func:`jboost.files.sources.read` is the way in. The room uses ``core`` and the safe paths of
``checkpoints``; it knows no model. Arrow and narwhals, of the extra ``io``, are imported when data
that need them are read.
"""
