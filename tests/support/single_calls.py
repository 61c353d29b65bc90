"""Run named models over a stream, and by single calls; print those whose digits differ.

This is a program, because the compiler reads its flags only once: tests compile without
optimisation, and there all programs round alike.
"""

import sys

import jax
import numpy as np

import jboost as jb
from jboost.adapters.feed import Feed
from jboost.catalogue import named


def differing(name: str, num_features: int, steps: int = 120) -> list[str]:
    """Return where a run and single calls of a model differ: steps, and fields of the state."""
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(steps, num_features)).astype(np.float32)
    ds = (np.sin(xs[:, 0]) + xs[:, 1] + 5).astype(np.float32)
    model = named(name)
    key = jax.random.key(3) if model.needs_key else None
    state, trace = jb.run(model, xs, ds, key)
    feed, estimates = Feed(model, num_features, key=key), []
    for x, d in zip(xs, ds, strict=True):
        estimates.append(np.asarray(feed.predict(x)).ravel()[0])
        feed = feed.learn(x, float(d))
    by_path = jax.tree_util.tree_leaves_with_path(state)
    fields = [
        jax.tree_util.keystr(path)
        for (path, a), b in zip(by_path, jax.tree.leaves(feed.state), strict=True)
        if not np.array_equal(a, b)
    ]
    return [str(t) for t in np.flatnonzero(trace.prediction != np.array(estimates))] + fields


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if found := differing(name, num_features=3):
            print(name, *found)
