"""Valid calls of every class of the library, made from signatures and the names of arguments.

A new class needs nothing here, unless it has a required argument of a new name.
"""

import dataclasses
import inspect
from pathlib import Path

import jax
import numpy as np
import optax

import jboost as jb
from jboost.boosting.emphasis import Emphasis
from jboost.core.losses import Loss
from jboost.core.pytree import MODELS
from jboost.wrappers.detectors import ChangeDetector

KEY = jax.random.key(0)
XS = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
DS = XS @ np.float32([1, -1, 0.5])
SGD = jb.SGD(0.1)

# Valid values by the names of arguments. What is not here has a default that is not None.
VALID = {
    "apply": jb.networks.Perceptron(2),
    "blocks": (XS, DS),
    "d": np.float32(0.5),
    "ds": DS,
    "function": lambda params, x: params @ x,
    "grid": {"step_size": [0.1]},
    "ids": [0, 1],
    "key": KEY,
    "lam": np.ones((3, 2)),
    "make": jb.SGD,
    "name": "mv",
    "optimizer": optax.sgd(0.1),
    "path": Path("run"),
    "prediction": DS,
    "regret": np.ones(3),
    "start": np.ones(3),
    "state": SGD.init(3),
    "x": XS[0],
    "xs": XS,
    "y": np.ones((3, 2)),
    **dict.fromkeys(("learner", "model"), SGD),
    **{"combiner": jb.BOA(), "metrics": jb.metrics.MSE(), "mode": jb.Weighted()},
    **dict.fromkeys(("capacity", "delay", "hidden", "k", "m", "most", "num_streams", "q"), 2),
    **{"depth": 1, "inputs": 1, "num_features": 3, "T": 4},
    **dict.fromkeys(("delta", "gamma", "kappa", "step_size"), 0.1),
    **{"desired_mse": 0.28, "forgetting": 0.9, "guarantee": 0.01, "max_variance": 1.0},
    **{"tau": 0.3, "rate": 0.5, "ridge": 1.0, "target_mse": 0.2, "zeta2": 0.01},
}
OF_THEOREM_2 = {name: np.array(0.1) for name in ("zeta2", "target_mse")} | {"k": np.array(2)}
# Arguments of a call whose valid values are others, or which a valid call must have.
TOGETHER = {
    "GrowingMemory": {"learner": jb.Newton(0.9)},
    "Gradient": {"optimizer": VALID["optimizer"]},
    "Lags": {"targets": 1},
    "Perceptron": {"hidden": 2},
    "boost": {"m": 2},
    "lemma1": {"d": np.ones(3)},
    "weight_bound": OF_THEOREM_2 | {"gamma": np.array(0.1)},
    "weight_bound_reason": OF_THEOREM_2 | {"gamma": np.array(0.1)},
    "weight_conditions": OF_THEOREM_2 | {"delta": np.array(0.1)},
    "updates": {"mode": "DR"},
    "expected_cost": {"mode": "DR", "method": "SGD"},
}
# Models that functions make, which check the arguments.
MADE = {"Boosted", "FromMean", "LeastSquares", "Mixture", "Pipeline", "Separate", "Shared"}
CLASSES = {
    name: cls
    for name, cls in MODELS.items()
    if cls.__module__.startswith("jboost.") and name not in MADE and dataclasses.fields(cls)
}


def valid_model(cls, **settings):
    parameters = inspect.signature(cls).parameters.values()
    base = {p.name: VALID[p.name] for p in parameters if p.default is p.empty}
    return cls(**base | TOGETHER.get(cls.__name__, {}) | settings)


def runnable(cls, **settings):
    """Return a model that can be run, with a part of this class inside, and these settings."""
    if cls is Emphasis:
        return jb.boost(SGD, 2, **{"target_mse": 0.2} | settings)
    part = valid_model(cls, **settings)
    if isinstance(part, jb.Transform):
        return jb.pipeline(part, SGD)
    if isinstance(part, jb.metrics.Metric):
        return jb.Scored(jb.Intervals(SGD) if part.of_intervals else SGD, part)
    if isinstance(part, ChangeDetector):
        return jb.Flags(SGD, detector=part)
    if isinstance(part, Loss):
        return jb.SGD(0.1, loss=part)
    return part
