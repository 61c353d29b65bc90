"""Reports of a run: accounts of its errors, intervals and learners, pictures, pages, and peers.

An account is constant in memory however long the stream, is kept in a checkpoint as JSON, and does
not depend on how the stream was cut into blocks: it has ``add(block)``, ``as_dict()`` and
``from_dict(saved)``. May import from ``core`` to ``files``.
"""
