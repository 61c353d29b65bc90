"""The public face: names, types, and how light it is to import."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import jboost as jb

pytestmark = pytest.mark.core

# The names of the public API that exist so far.
NAMES = [
    "save",
    "load",
    "SGD",
    "NLMS",
    "Newton",
    "ForwardNewton",
    "Weighted",
    "DataReuse",
    "RandomUpdate",
    "PoissonReuse",
    "Uniform",
    "NSGD",
    "EWA",
    "BOA",
    "MLPoly",
    "Scale",
    "ScaleTarget",
    "Bias",
    "Calendar",
    "Impute",
    "Lags",
    "Past",
    "Polynomial",
    "RandomFourier",
    "pipeline",
    "Gradient",
    "GaussNewton",
    "Refined",
    "ScaleAlike",
    "Select",
    "PiecewiseLinear",
    "BoostedTrees",
    "Replay",
    "GrowingMemory",
    "Intervals",
    "OnChange",
    "auto",
    "Budget",
    "Delayed",
    "Fleet",
    "Forecast",
    "Huber",
    "Pending",
    "Scored",
    "WeightColumn",
    "SelfTuning",
    "hypergradient",
    "tune",
    "boost",
    "Flags",
    "AffineProjection",
    "SignSignLMS",
    "VariableStepLMS",
    "Volterra",
    "explain",
    "export",
    "cache",
    "bsgd_wu",
    "bsgd_dr",
    "bsgd_ru",
    "bnm_wu",
    "bnm_dr",
    "bnm_ru",
    "bpl_wu",
    "bpl_dr",
    "bpl_ru",
    "run",
    "mse",
    "ase",
    "sweep",
    "streams",
    "datasets",
    "theory",
    "Learner",
    "Transform",
    "model",
    "static",
    "targets",
]


def test_all_is_the_public_api():
    assert sorted(jb.__all__) == sorted(NAMES)
    for name in jb.__all__:
        assert getattr(jb, name).__doc__


def test_version_is_the_installed_one():
    assert jb.__version__ == version("jboost")


def test_importing_loads_no_extra():
    heavy = ["optax", "matplotlib", "pyarrow", "narwhals", "tqdm", "sklearn", "river", "chex"]
    code = f"import sys, jboost; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "[]"


def test_what_is_loaded_later_makes_no_model():
    """A checkpoint may name any model, so all of them are there as soon as the library is."""
    code = """
import importlib, pkgutil, sys
import jboost
from jboost.core.pytree import MODELS
print(sorted({"jboost.sweeps", "jboost.running.stream", "jboost.paper.datasets"} & {*sys.modules}))
known = {*MODELS}
for module in pkgutil.walk_packages(jboost.__path__, "jboost."):
    if module.name == "jboost.__main__":
        continue  # it is the command
    try:
        importlib.import_module(module.name)
    except ImportError:
        pass  # of an extra
print(sorted({*MODELS} - known))
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout.split() == ["[]", "[]"]


def test_every_name_is_shown_by_dir():
    assert {*jb.__all__, "run_stream", "CheckpointError", "__version__"} <= {*dir(jb)}
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        _ = jb.swep
