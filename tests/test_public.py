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
    "Impute",
    "Lags",
    "Polynomial",
    "RandomFourier",
    "pipeline",
    "Gradient",
    "GaussNewton",
    "Refined",
    "ScaleAlike",
    "Select",
    "PiecewiseLinear",
    "Intervals",
    "OnChange",
    "auto",
    "Budget",
    "Delayed",
    "Huber",
    "Pending",
    "Scored",
    "WeightColumn",
    "SelfTuning",
    "hypergradient",
    "tune",
    "boost",
    "bsgd_wu",
    "bsgd_dr",
    "bsgd_ru",
    "bnm_wu",
    "bnm_dr",
    "bnm_ru",
    "run",
    "mse",
    "ase",
    "sweep",
    "streams",
    "datasets",
    "theory",
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
