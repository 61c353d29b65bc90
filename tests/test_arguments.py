"""Wrong arguments: every error names the argument and is a TypeError or a ValueError.

The calls are made from signatures. Each argument of each public class, function and method gets
each hostile value in turn, while the others have valid values. So a new class is tested without
being mentioned here. If it has a required argument of a new name, ``VALID`` must hold a value of it.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jboost as jb
from jboost.boosting.models import Common
from jboost.core.pytree import MODELS
from jboost.fleets.fleet import Fleet
from jboost.wrappers.targets import Targets
from support import memory

KEY = jax.random.key(0)
XS = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
DS = XS @ np.float32([1, -1, 0.5])
SGD = jb.SGD(0.1)

HOSTILE = {
    "inf": np.inf,
    "-inf": -np.inf,
    "nan": np.nan,
    "-1": -1,
    "0": 0,
    "10**400": 10**400,
    "10**5000": 10**5000,
    "2**63": 2**63,
    "1e300": 1e300,
    "True": True,
    "word": "no",
    "empty word": "",
    "None": None,
    "empty list": [],
    "ragged": [[1], [1, 2]],
    "objects": np.array([object(), None], object),
    "words": np.array(["a", "b"]),
    "complex": 1 + 2j,
    "bytes": b"no",
    "dict": {"a": 1},
    "object": object(),
}
NUMBERS = {"inf", "-inf", "nan", "-1", "0", "10**400", "10**5000", "2**63", "1e300"}
# What an argument must refuse, by the type of a valid value; other values may be allowed.
REFUSED = {
    bool: {*HOSTILE} - {"True"},
    int: {*HOSTILE} - {"-1", "0", "2**63"},
    float: {*HOSTILE} - {"-1", "0", "2**63", "1e300"},
    str: {*HOSTILE},
}

# Valid values by the names of arguments. What is not here has a default that is not None.
VALID = {
    **{"action": "restart", "apply": jb.networks.Perceptron(2), "bias": True, "blocks": (XS, DS)},
    **{"capacity": 2, "combiner": jb.BOA(), "delay": 2, "delta": 0.1, "depth": 1, "desired_mse": 0.28},
    **{"d": 0.5, "ds": DS, "emphasis": None, "function": lambda params, x: params @ x, "gamma": 0.1},
    **{"forgetting": 0.9, "grid": {"step_size": [0.1]}, "guarantee": 0.01, "hidden": 2, "k": 2},
    **{"inputs": 1, "kappa": 0.1, "key": KEY, "lam": np.ones((3, 2)), "learner": SGD, "m": 2},
    **{"make": jb.SGD, "max_variance": 1.0, "metrics": jb.metrics.MSE(), "method": None, "mode": jb.Weighted()},
    **{"model": SGD, "most": 2, "num_features": 3, "num_streams": 2, "optimizer": optax.sgd(0.1)},
    **{"prediction": DS, "q": 2, "rate": 0.5, "regret": np.ones(3), "ridge": 1.0, "start": np.ones(3)},
    **{"state": SGD.init(3), "step_size": 0.1, "target_mse": 0.2, "T": 4, "x": XS[0], "xs": XS},
    **{"y": np.ones((3, 2)), "zeta2": 0.01, "name": "kin8nm", "rows": 3, "parameters": None},
}
# Arguments with defaults that a valid call must have all the same.
TOGETHER = {"Gradient": {"optimizer": optax.sgd(0.1)}, "Lags": {"targets": 1}, "Perceptron": {"hidden": 2}, "boost": {"m": 2}}
EXACT = {"position", "seed"}  # whole numbers that may be as large as 2**63 or so
PATHS = {"path", "checkpoint"}
# Models that functions make, which check the arguments.
MADE = {"Boosted", "FromMean", "LeastSquares", "Pipeline", "Separate", "Shared"}
CLASSES = {
    name: cls
    for name, cls in MODELS.items()
    if cls.__module__.startswith("jboost.") and name not in MADE and dataclasses.fields(cls)
}


def refused_values(parameter):
    """Return the names of the hostile values that an argument must refuse."""
    valid = VALID.get(parameter.name, parameter.default)
    kind = type(valid)
    if isinstance(valid, jax.Array) or dataclasses.is_dataclass(valid):
        names = {*HOSTILE}
    else:
        names = REFUSED.get(kind, set())
    if kind is int and parameter.name in EXACT:
        names = names - {"2**63"}
    optional = parameter.default is None or "None" in inspect.formatannotation(parameter.annotation)
    return names - {"None"} if optional else names


def problems(function, call=None, skip=()):
    """Return what is wrong with the errors of a function, whose arguments ``call`` takes."""
    parameters = [*inspect.signature(function).parameters.values()]
    if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:  # of the paper's models
        of_boost = inspect.signature(jb.boost).parameters
        parameters[-1:] = [of_boost[name] for name in Common.__annotations__]
    base = {p.name: VALID[p.name] for p in parameters if p.default is p.empty}
    base |= TOGETHER.get(function.__name__, {})
    (call or function)(**base)  # the valid call
    found = []
    for parameter in parameters:
        must, name = refused_values(parameter), parameter.name
        for label, value in HOSTILE.items():
            if (name, label) in skip:
                continue
            try:
                (call or function)(**base | {name: value})
            except (TypeError, ValueError) as error:
                if not re.search(rf"\b{name}\b", str(error)):
                    found.append(f"{name}={label} is not named: {type(error).__name__}: {error}")
            except Exception as error:
                if not (isinstance(error, OSError) and name in PATHS):
                    found.append(f"{name}={label}: {type(error).__name__}: {error}")
            else:
                if label in must:
                    found.append(f"{name}={label} was accepted")
    return found


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_fields_of_classes(name):
    assert problems(CLASSES[name]) == []


FUNCTIONS = {
    name: getattr(jb, name)
    for name in jb.__all__
    if inspect.isfunction(getattr(jb, name)) and name not in {"model", "pipeline", "static"}
}
for module in (jb.streams, jb.theory, jb.baselines):
    public = inspect.getmembers(module, inspect.isfunction)
    FUNCTIONS |= {name: f for name, f in public if f.__module__ == module.__name__ and name[0] != "_"}
FUNCTIONS |= {"evaluate": jb.metrics.evaluate, "curve": jb.metrics.curve}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_arguments_of_functions(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    VALID["path"] = tmp_path / "run"
    jb.save(VALID["path"], SGD, SGD.init(3))
    assert problems(FUNCTIONS[name]) == []
