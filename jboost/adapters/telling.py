"""What a fed model says of rows beside its predictions: what each column adds, and flags."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from jboost.adapters.feed import Feed
from jboost.adapters.named import Place
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


def explained_features(
    feed: Feed, row: np.ndarray, columns: Mapping[Hashable, int]
) -> tuple[float, dict[Hashable, float]]:
    """Return the base of the prediction for a row, and what each feature adds.

    ``columns`` are the places of the features; places that none has yet count for the base.
    """
    numbers = {feature: i for i, feature in enumerate(dict.fromkeys(map(_feature, columns)))}
    groups = np.full(len(row), len(numbers))
    for name, column in columns.items():
        groups[column] = numbers[_feature(name)]
    (base,), (parts,) = explained(feed, row[None], groups)
    rest = parts[len(numbers) :].sum()
    return float(base + rest), dict(zip(numbers, parts.tolist(), strict=False))


def flags_of_features(
    feed: Feed, row: np.ndarray, target: float, columns: Mapping[Hashable, int]
) -> dict[str, Any]:
    """Return the flags of a row; ``drifted`` are the names of features."""
    found = flags(feed, row[None], np.array([target]))
    drifted = [_feature(name) for name, column in columns.items() if found["drifted"][0, column]]
    told = {name: found[name][0].item() for name in ("p_value", "anomaly", "change")}
    return told | {"drifted": [*dict.fromkeys(drifted)]}


def _feature(name: Hashable) -> Hashable:
    """Return the feature that a column is of."""
    return name.feature if isinstance(name, Place) else name
