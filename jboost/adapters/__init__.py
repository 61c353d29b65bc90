"""Presents jboost's models as regressors of scikit-learn and of river, on top of ``feed``.

Forecasters are presented to river and sktime. What the calls of a feed and of a server have in
common is in ``held``.

May import from ``core`` to ``reports``.
"""

import jax


def compute_in_calling_thread() -> None:
    """Make single calls faster: let JAX compute on the CPU in the thread that calls it.

    JAX hands most computations to another thread, and back again. Without that, river's
    ``predict_one`` and ``learn_one`` of a sample of 12 features took together 34 µs instead of 78
    with a Newton learner, and 48 instead of 96 with 20 boosted ones. No number depends on it.

    The setting holds for the whole process. JAX reads it once, before its first computation: a
    later call has no effect.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)
