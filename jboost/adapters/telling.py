"""What a fed model says of rows beside its predictions: what each column adds, and flags."""

from __future__ import annotations

import numpy as np

from jboost.adapters.feed import Feed
from jboost.core.learner import float_dtype
from jboost.core.within import within
from jboost.explanations import explain
from jboost.running.run import run
from jboost.wrappers.flags import Flags, flagged


def explained(feed: Feed, xs: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the base (n,) and the parts (n, groups) of the predictions for rows (n, r)."""
    state, model = feed.state, feed.setup.model
    xs = xs.astype(float_dtype(state))
    both = [explain(model, state, x, groups=groups) for x in xs]
    base, parts = (np.array([np.asarray(pair[i]) for pair in both], np.float64) for i in range(2))
    return base, parts.reshape(len(xs), -1)


def flags(feed: Feed, xs: np.ndarray, ds: np.ndarray) -> dict[str, np.ndarray]:
    """Return the flags of rows as if they were learned next; nothing is learned."""
    state, model = feed.state, feed.setup.model
    if within(model, Flags) is None:
        advice = "make the regressor with a model such as jboost.Flags(jboost.auto())"
        raise ValueError(f"there are no flags: {advice}")
    xs, ds = (array.astype(float_dtype(state)) for array in (xs, ds))
    _, trace = run(model, xs, ds, feed.setup.key, state=state, observe=flagged)
    found = {name: np.asarray(values) for name, values in trace.observed.items()}
    if found["drifted"].shape != xs.shape:
        advice = "put Flags around the pipeline"
        raise ValueError(f"the flags are of other columns than x has; {advice}")
    return found
