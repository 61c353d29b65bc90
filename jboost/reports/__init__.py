"""Reports of a run: accounts of its errors, intervals and learners, pictures, and pages.

An account is constant in memory, is kept in a checkpoint as JSON, and does not depend on how the
stream was cut into blocks. May import from ``core`` to ``files``.
"""
