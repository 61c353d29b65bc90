"""Refuses to compute in a process that was forked after JAX began to compute: it would hang."""

import os

_computed = _forked = False


def check() -> None:
    """Note that this process computes; raise an error if it is the fork of one that did."""
    global _computed
    if _forked:
        raise RuntimeError(
            "this process was forked after JAX computed in its parent, and would wait for ever: "
            "start processes by multiprocessing.get_context('spawn'), or by joblib's loky, or use "
            "jboost after the fork only"
        )
    _computed = True


def _mark() -> None:
    global _forked
    _forked = _forked or _computed


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark)
