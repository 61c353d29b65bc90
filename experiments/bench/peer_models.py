"""The regressors of other libraries that ``accuracy_peers.py`` runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from experiments.shared.peers import river_predictions
from experiments.shared.sets import Floats, without_gaps

SEED = 1
SCALED = " behind StandardScaler"
LIGHTGBM, LIGHTGBM_DEFAULTS = "LightGBM", "LightGBM, its defaults"
LAST_VALUE = "last value"
FIRST_FITS, FIT_EVERY = (50, 100, 200, 350, 500), 500  # rows after which LightGBM is fitted
# In LightGBM's favour: its defaults do worse, most of all while rows are few. These settings are
# among the best of thirteen that were tried on kin8nm, compactiv, mv, puma8nh and powerplant.
BOOSTING = {
    LIGHTGBM: {"n_estimators": 400, "learning_rate": 0.05, "min_child_samples": 5},
    LIGHTGBM_DEFAULTS: {},
}


class RiverClass(NamedTuple):
    """Where river has a regressor, whether it takes a seed, and whether it runs scaled too."""

    module: str
    seeded: bool = False
    scaled: bool = True


# Left out: regressors that need another model, several targets (iSOUP) or named fields (FFM and
# FwFM), and HOFM, whose time grows with the cube of the number of columns.
RIVER = {
    "LinearRegression": RiverClass("linear_model"),
    "PARegressor": RiverClass("linear_model"),
    "BayesianLinearRegression": RiverClass("linear_model"),
    "HoeffdingTreeRegressor": RiverClass("tree"),
    "HoeffdingAdaptiveTreeRegressor": RiverClass("tree", seeded=True),
    "OXTRegressor": RiverClass("forest", seeded=True),
    "AMRules": RiverClass("rules"),
    "SGTRegressor": RiverClass("tree", scaled=False),
    "AMFRegressor": RiverClass("forest", seeded=True, scaled=False),
    "KNNRegressor": RiverClass("neighbors"),
    "FMRegressor": RiverClass("facto", seeded=True, scaled=False),
    "ARFRegressor": RiverClass("forest", seeded=True),
    "SRPRegressor": RiverClass("ensemble", seeded=True, scaled=False),
}
CAPYMOA = {
    "CapyMOA kNN": "KNNRegressor",
    "CapyMOA SGBR": "StreamingGradientBoostedRegression",
    "CapyMOA ARF": "AdaptiveRandomForestRegressor",
    "CapyMOA SOKNL": "SOKNL",
}
_SLOW = ("ARFRegressor", *CAPYMOA, "FMRegressor")
_SLOWEST = "SRPRegressor"
NAMES = (  # cheap ones first
    *(LAST_VALUE, *BOOSTING),
    *(name for name in RIVER if name not in (*_SLOW, _SLOWEST)),
    *_SLOW,
    *(name + SCALED for name, entry in RIVER.items() if entry.scaled),
    _SLOWEST,
)


def library(name: str) -> str:
    """Return the name of the package that a regressor comes from; "numpy" for the last value."""
    if name == LAST_VALUE:
        return "numpy"
    if name in BOOSTING:
        return "lightgbm"
    return "capymoa" if name in CAPYMOA else "river"


def predictions(name: str, xs: Floats, ds: Floats) -> Floats:
    """Return the (T,) predictions of a regressor, each made before its target was learned.

    LightGBM knows gaps; for the others a gap has the latest value of its column.
    """
    if name == LAST_VALUE:
        return np.concatenate([[0.0], ds[:-1]])
    if name in BOOSTING:
        return refitted(name, xs, ds)
    run = capymoa_predictions if name in CAPYMOA else _river_predictions
    return run(name, without_gaps(xs), ds)


def make(name: str) -> Any:
    """Return a new regressor of river, behind river's scaler if its name says so."""
    bare = name.removesuffix(SCALED)
    entry = RIVER[bare]
    cls = getattr(import_module(f"river.{entry.module}"), bare)
    regressor = cls(**{"seed": SEED} if entry.seeded else {})
    if name == bare:
        return regressor
    return import_module("river.preprocessing").StandardScaler() | regressor


def _river_predictions(name: str, xs: Floats, ds: Floats) -> Floats:
    return river_predictions(_Ordinary(make(name)), xs, ds)


class _Ordinary:
    """A regressor of river whose predictions are plain floats; 0 before it has one."""

    def __init__(self, regressor: Any) -> None:
        self.learn_one: Callable[..., Any] = regressor.learn_one
        self.regressor = regressor

    def predict_one(self, x: dict[int, float]) -> float:
        return float(self.regressor.predict_one(x) or 0.0)


def refitted(name: str, xs: Floats, ds: Floats) -> Floats:
    """Return the predictions of LightGBM, fitted again and again to all the past, in one thread.

    Before the first fit they are the mean of the past.
    """
    lightgbm = import_module("lightgbm")
    T = len(ds)
    later = range(FIRST_FITS[-1] + FIT_EVERY, T, FIT_EVERY)
    cuts = [*(cut for cut in (*FIRST_FITS, *later) if cut < T), T]
    past = np.cumsum(ds[: cuts[0]]) / np.arange(1, cuts[0] + 1)
    out = [np.concatenate([[0.0], past[:-1]])]
    for start, stop in itertools.pairwise(cuts):
        options = BOOSTING[name] | {"n_jobs": 1, "random_state": SEED, "verbose": -1}
        model = lightgbm.LGBMRegressor(**options)
        model.fit(xs[:start], ds[:start])
        out.append(model.predict(xs[start:stop]))
    return np.concatenate(out)


def capymoa_predictions(name: str, xs: Floats, ds: Floats) -> Floats:
    """Return the predictions of a regressor of CapyMOA, 0 where it has none."""
    regressors, streams = import_module("capymoa.regressor"), import_module("capymoa.stream")
    stream = streams.NumpyStream(xs, ds, target_type="numeric")
    schema = stream.get_schema()
    regressor = getattr(regressors, CAPYMOA[name])(schema=schema, random_seed=SEED)
    out = np.zeros(len(ds))
    for t in range(len(ds)):
        instance = stream.next_instance()
        prediction = regressor.predict(instance)
        if prediction is not None and not math.isnan(prediction):
            out[t] = prediction
        regressor.train(instance)
    return out
