"""jboost: boosted online regression in JAX.

Predict a number from a stream, one sample at a time, and learn from each answer.
"""

from importlib.metadata import version

from jboost import baselines as baselines
from jboost import datasets, streams, theory
from jboost import engine as engine
from jboost import report as report
from jboost.aggregate import BOA, EWA, MLPoly
from jboost.boost import boost
from jboost.checkpoint import CheckpointError as CheckpointError
from jboost.checkpoint import load, save
from jboost.combine import NSGD, Uniform
from jboost.driver import run_stream as run_stream
from jboost.learners import NLMS, SGD, ForwardNewton, Newton
from jboost.models import bnm_dr, bnm_ru, bnm_wu, bsgd_dr, bsgd_ru, bsgd_wu
from jboost.modes import DataReuse, PoissonReuse, RandomUpdate, Weighted
from jboost.pipeline import pipeline
from jboost.run import ase, mse, run
from jboost.sweep import sweep
from jboost.transforms import Bias, Impute, Lags, Polynomial, RandomFourier, Scale, ScaleTarget

__version__ = version("jboost")

__all__ = [
    "BOA",
    "EWA",
    "NLMS",
    "NSGD",
    "SGD",
    "Bias",
    "DataReuse",
    "ForwardNewton",
    "Impute",
    "Lags",
    "MLPoly",
    "Newton",
    "PoissonReuse",
    "Polynomial",
    "RandomFourier",
    "RandomUpdate",
    "Scale",
    "ScaleTarget",
    "Uniform",
    "Weighted",
    "ase",
    "bnm_dr",
    "bnm_ru",
    "bnm_wu",
    "boost",
    "bsgd_dr",
    "bsgd_ru",
    "bsgd_wu",
    "datasets",
    "load",
    "mse",
    "pipeline",
    "run",
    "save",
    "streams",
    "sweep",
    "theory",
]
