"""Run named models over a stream, by single calls and in blocks; print those whose digits differ.

This is a program, because the compiler reads its flags only once: tests compile without
optimisation, and there all programs round alike.
"""

import sys

import jax
import numpy as np

import jboost as jb
from jboost.adapters.feed import Feed
from jboost.adapters.held import Held
from jboost.catalogue import named
from jboost.reports.accounts import Watch
from jboost.running.run import initial


def differing(name: str, num_features: int, steps: int = 120) -> list[str]:
    """Return where other ways differ from a run of a model: steps, and fields of the state."""
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
    first = initial(model, num_features, xs.dtype, key)
    held, rows = Held(model, num_features, first, key, Watch()), []
    for start, stop in ((0, 1), (1, 10), (10, steps)):
        held, found = held.run(xs[start:stop], ds[start:stop])
        rows.append(found.prediction)
    ways = {"single": (estimates, feed.state), "blocks": (np.concatenate(rows), held.state)}
    by_path = jax.tree_util.tree_leaves_with_path(state)
    return [
        f"{way}: {place}"
        for way, (predictions, after) in ways.items()
        for place in [
            *map(str, np.flatnonzero(trace.prediction != np.array(predictions))),
            *(
                jax.tree_util.keystr(path)
                for (path, a), b in zip(by_path, jax.tree.leaves(after), strict=True)
                if not np.array_equal(a, b)
            ),
        ]
    ]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if found := differing(name, num_features=3):
            print(name, *found)
