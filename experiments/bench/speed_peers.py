"""What a user might use instead, one sample at a time: predict, then learn.

Each peer gets its rows in the form it likes best, made before the clock starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Peer(NamedTuple):
    """A name, a call that runs the stream from the start, and its number of samples."""

    name: str
    call: Callable[[], Any]
    samples: int


def peers(xs: Floats, ds: Floats, *, m: int, step_size: float) -> Iterator[Peer | str]:
    """Every peer that is installed, and a note for every package that is not."""
    for package, make in (("river", _river), ("padasip", _padasip), ("scikit-learn", _sklearn)):
        try:
            yield from make(np.asarray(xs, float), np.asarray(ds, float), m, step_size)
        except ImportError:
            yield f"{package} is not installed: its rows are left out"


def versions() -> dict[str, str]:
    """The versions of the installed peers."""
    found = {}
    for name in ("river", "padasip", "scikit-learn"):
        try:
            found[name] = version(name)
        except ImportError:
            continue
    return found


def _river(xs: Any, ds: Any, m: int, step_size: float) -> Iterator[Peer]:
    """River: one linear model, bagging, and an exponentially weighted average."""
    ensemble = import_module("river.ensemble")
    linear = import_module("river.linear_model").LinearRegression
    sgd = import_module("river.optim").SGD
    names = [f"x{i}" for i in range(xs.shape[1])]
    rows = [dict(zip(names, x, strict=True)) for x in xs.tolist()]
    targets = ds.tolist()

    def one() -> Any:
        return linear(optimizer=sgd(step_size), intercept_lr=0.0)  # the rows hold a constant

    def bagging() -> Any:
        return ensemble.BaggingRegressor(one(), n_models=m, seed=1)

    def averaging() -> Any:
        return ensemble.EWARegressor([one() for _ in range(m)])

    def through(make: Callable[[], Any]) -> Callable[[], list[float]]:
        def call() -> list[float]:
            model, predictions = make(), []
            for x, d in zip(rows, targets, strict=True):
                predictions.append(model.predict_one(x))
                model.learn_one(x, d)
            return predictions

        return call

    yield Peer(f"river, {m} bagged linear", through(bagging), len(ds))
    yield Peer(f"river, {m} linear in EWA", through(averaging), len(ds))


def _padasip(xs: Any, ds: Any, m: int, step_size: float) -> Iterator[Peer]:
    """padasip: LMS and RLS filters."""
    del m, step_size
    filters = import_module("padasip.filters")
    r = xs.shape[1]
    yield Peer(
        "padasip, one NLMS",
        lambda: filters.FilterNLMS(n=r, mu=0.1, w="zeros").run(ds, xs)[0],
        len(ds),
    )
    yield Peer(
        "padasip, one RLS",
        lambda: filters.FilterRLS(n=r, mu=0.999, w="zeros").run(ds, xs)[0],
        len(ds),
    )


def _sklearn(xs: Any, ds: Any, m: int, step_size: float) -> Iterator[Peer]:
    """scikit-learn: one SGDRegressor."""
    del m
    regressor = import_module("sklearn.linear_model").SGDRegressor
    count = min(len(ds), 300)  # about a millisecond each
    rows = [(xs[t : t + 1], ds[t : t + 1]) for t in range(count)]

    def call() -> list[float]:
        model = regressor(
            learning_rate="constant", eta0=step_size, penalty=None, fit_intercept=False
        )
        model.partial_fit(np.zeros_like(rows[0][0]), [0.0])  # it predicts only once it has learned
        predictions = []
        for x, d in rows:
            predictions.append(float(model.predict(x)[0]))
            model.partial_fit(x, d)
        return predictions

    yield Peer("scikit-learn, one SGD", call, count)
