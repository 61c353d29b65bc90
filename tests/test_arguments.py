"""Wrong arguments: every error names the argument and is a TypeError or a ValueError.

The calls are made from signatures. Each argument of each public class, function and method gets
each hostile value in turn, while the others have valid values. So a new class is tested without
being mentioned here, unless it has a required argument of a new name: see support/arguments.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.arguments import CLASSES, DS, KEY, SGD, TOGETHER, VALID, XS, runnable, valid_model

import jboost as jb
from jboost.boosting.models import Common
from jboost.cli import main
from jboost.core.step import over_time
from jboost.engine import plan
from jboost.fleets.fleet import Fleet
from jboost.wrappers.targets import Targets

# A number beyond float32 becomes infinite in an eager call; NumPy warns, and the sample is skipped.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast")

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
# What an argument must refuse, by the type of a valid value; other values may be allowed.
REFUSED = {
    bool: {*HOSTILE} - {"True"},
    int: {*HOSTILE} - {"-1", "0", "2**63"},
    float: {*HOSTILE} - {"-1", "0", "2**63", "1e300"},
    str: {*HOSTILE},
}

EXACT = {"position", "seed"}  # whole numbers that may be as large as 2**63 or so
PATHS = {"path", "checkpoint"}


def refused_values(parameter, valid):
    """Return the names of the hostile values that an argument with this valid value must refuse."""
    kind = type(valid)
    if isinstance(valid, jax.Array) or dataclasses.is_dataclass(valid):
        names = {*HOSTILE}
    else:
        names = REFUSED.get(kind, set())
    if kind is int and parameter.name in EXACT:
        names = names - {"2**63"}
    optional = parameter.default is None or "None" in inspect.formatannotation(parameter.annotation)
    return names - {"None"} if optional else names


def problems(function, call=None, skip=(), **values):
    """Return what is wrong with the errors of a function.

    ``call`` is called in its place, where that is not enough. ``values`` are further arguments of
    all calls. ``skip`` has pairs of an argument and the name of a hostile value.
    """
    parameters = [*inspect.signature(function).parameters.values()]
    if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:  # of the paper's models
        of_boost = inspect.signature(jb.boost).parameters
        parameters[-1:] = [of_boost[name] for name in Common.__annotations__]
    base = TOGETHER.get(function.__name__, {}) | values
    required = [p.name for p in parameters if p.default is p.empty]
    base |= {name: VALID[name] for name in required if name not in base}
    (call or function)(**base)  # the valid call
    found = []
    for parameter in parameters:
        name = parameter.name
        must = refused_values(parameter, base.get(name, VALID.get(name, parameter.default)))
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
for module in (jb.streams, jb.theory, jb.baselines, jb.datasets):
    for name, function in inspect.getmembers(module, inspect.isfunction):
        its_own = function.__module__ == module.__name__ and name[0] != "_"
        if its_own and inspect.signature(function).parameters and name != "prepare":
            FUNCTIONS[f"{module.__name__.rpartition('.')[-1]}.{name}"] = function
FUNCTIONS |= {"evaluate": jb.metrics.evaluate, "curve": jb.metrics.curve}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_arguments_of_functions(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JBOOST_CACHE", "off")  # the folder of compiled programs stays as it is
    jb.save("run", SGD, SGD.init(3))
    settings = [s for s in jax.config.values if "cache" in s]
    before = {setting: jax.config.values[setting] for setting in settings}
    assert problems(FUNCTIONS[name]) == []
    for setting, value in before.items():  # which `cache` changes
        if jax.config.values[setting] != value:
            jax.config.update(setting, value)


def test_run_stream(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    count = iter(range(1000))

    def call(**arguments):
        if (
            isinstance(arguments.get("checkpoint"), str) and arguments["checkpoint"]
        ):  # a file of its own, as the name is a valid one
            arguments["checkpoint"] = f"no{next(count)}"
        return jb.run_stream(**arguments).finish()

    assert problems(jb.run_stream, call) == []


def test_fleets():
    assert problems(Fleet) == []
    fleet = Fleet(SGD, 3)
    state, rows = fleet.init(), {"names": [0, 1], "xs": XS[:2]}
    assert problems(fleet.run, state=state, ds=DS[:2], **rows) == []
    assert problems(fleet.learn, state=state, ds=DS[:2], **rows) == []
    assert problems(fleet.predict, state=state, **rows) == []
    assert problems(fleet.states, state=state) == []
    assert problems(fleet.names, state=state) == []


def test_adapters():
    from jboost.adapters import river, sklearn

    def fit(**arguments):
        return sklearn.OnlineRegressor(**{"model": SGD} | arguments).fit(XS, DS)

    def learn(**arguments):
        river.OnlineRegressor(**{"model": SGD} | arguments).learn_one({"a": 1.0}, 2.0)

    skip = {("model", "None"), ("model", "empty word")}  # which is "auto", and compiles for long
    assert problems(sklearn.OnlineRegressor, fit, skip) == []
    assert problems(river.OnlineRegressor, learn, skip) == []


LEARNERS = {
    name: cls for name, cls in CLASSES.items() if issubclass(cls, (jb.Learner, jb.Transform))
}


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_init(name):
    assert problems(valid_model(LEARNERS[name]).init, key=KEY) == []


@pytest.mark.parametrize(
    "model",
    [SGD, jb.boost(SGD, 2, target_mse=0.1), jb.pipeline(jb.Scale(), SGD), jb.targets(SGD, 2)],
    ids=["SGD", "booster", "pipeline", "targets"],
)
def test_predict_and_update(model):
    d = np.ones(2, np.float32) if isinstance(model, Targets) else VALID["d"]
    assert problems(model.predict, state=model.init(3)) == []
    skip = {
        ("repeats", "True")
    }  # a mode that learns a sample or not repeats it True or False times
    assert problems(model.update, None, skip, state=model.init(3), d=d) == []


def test_transforms():
    scale = jb.Scale()
    assert problems(scale.apply, state=scale.init(3)) == []
    assert problems(scale.update, state=scale.init(3)) == []


# Settings that a class accepts, however large or small, give finite results.
SIZES = np.float32([np.finfo(np.float32).tiny, 1e-30, 1e-15, 1e-7, 0, 1 - 6e-8, 1, 1e7, 1e15, 1e30])
EXTREMES = [*SIZES.tolist(), float(np.finfo(np.float32).max)]


def accepted(cls):
    """Return models of a class, each with an extreme value of one of its settings."""
    models = []
    for parameter in inspect.signature(cls).parameters.values():
        if not isinstance(VALID.get(parameter.name, parameter.default), float):
            continue
        for value in EXTREMES:
            with contextlib.suppress(ValueError):
                models.append(runnable(cls, **{parameter.name: value}))
    return models


TUNED = [name for name, cls in CLASSES.items() if name != "Metric" and accepted(cls)]


@pytest.mark.parametrize("name", TUNED)
def test_extreme_settings_give_finite_results(name):
    by_structure = {}
    for model in accepted(CLASSES[name]):
        by_structure.setdefault(jax.tree.structure(model), []).append(model)
    xs = np.concatenate([XS, 1e3 * XS, 1e-3 * XS, XS])
    ds = np.concatenate([DS, DS, 1e3 * DS, DS])

    def run(model):
        state, trace = over_time(model, model.init(3, jnp.float32, key=KEY), xs, ds, KEY)
        return state, trace.prediction

    for models in by_structure.values():
        stacked = jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *models)
        state, prediction = jax.jit(jax.vmap(run))(stacked)
        for number, model in enumerate(models):
            assert np.isfinite(prediction[number]).all(), model
            floats = [leaf[number] for leaf in jax.tree.leaves(state) if leaf.dtype == jnp.float32]
            assert all(np.isfinite(leaf).all() for leaf in floats), model


def test_the_environment_variable_is_named(monkeypatch, capsys):
    monkeypatch.setattr(plan, "_choice", "bogus")
    with pytest.raises(ValueError, match="JBOOST_ENGINE must be one of 'auto', 'plain'; got"):
        jb.run(jb.SGD(0.3, guard=False), XS[:5], DS[:5])
    assert main(["models"]) == 2
    assert "JBOOST_ENGINE must be one of" in capsys.readouterr().err
