"""jboost: boosted online regression in JAX.

Predict a number from a stream, one sample at a time, and learn from each answer.
"""

from importlib.metadata import version

from jboost import baselines as baselines
from jboost import datasets, streams, theory
from jboost import engine as engine
from jboost import intervals as intervals
from jboost import metrics as metrics
from jboost import multi as multi
from jboost import networks as networks
from jboost import report as report
from jboost.aggregate import BOA, EWA, MLPoly
from jboost.auto import auto
from jboost.boost import boost
from jboost.change import OnChange
from jboost.checkpoint import CheckpointError as CheckpointError
from jboost.checkpoint import load, save
from jboost.combine import NSGD, Uniform
from jboost.delayed import Delayed, Pending
from jboost.driver import run_stream as run_stream
from jboost.hypergradient import hypergradient
from jboost.intervals import Intervals
from jboost.learners import (
    NLMS,
    SGD,
    ForwardNewton,
    GaussNewton,
    Gradient,
    Newton,
    PiecewiseLinear,
)
from jboost.models import bnm_dr, bnm_ru, bnm_wu, bsgd_dr, bsgd_ru, bsgd_wu
from jboost.modes import DataReuse, PoissonReuse, RandomUpdate, Weighted
from jboost.pipeline import pipeline
from jboost.refine import Refined
from jboost.robust import Huber
from jboost.run import ase, mse, run
from jboost.scored import Scored
from jboost.selftuning import SelfTuning
from jboost.sweep import sweep
from jboost.transforms import (
    Bias,
    Impute,
    Lags,
    Polynomial,
    RandomFourier,
    Scale,
    ScaleAlike,
    ScaleTarget,
    Select,
)
from jboost.tune import tune
from jboost.weights import Budget, WeightColumn

__version__ = version("jboost")

__all__ = [
    "BOA",
    "EWA",
    "NLMS",
    "NSGD",
    "SGD",
    "Bias",
    "Budget",
    "DataReuse",
    "Delayed",
    "ForwardNewton",
    "GaussNewton",
    "Gradient",
    "Huber",
    "Impute",
    "Intervals",
    "Lags",
    "MLPoly",
    "Newton",
    "OnChange",
    "Pending",
    "PiecewiseLinear",
    "PoissonReuse",
    "Polynomial",
    "RandomFourier",
    "RandomUpdate",
    "Refined",
    "Scale",
    "ScaleAlike",
    "ScaleTarget",
    "Scored",
    "Select",
    "SelfTuning",
    "Uniform",
    "WeightColumn",
    "Weighted",
    "ase",
    "auto",
    "bnm_dr",
    "bnm_ru",
    "bnm_wu",
    "boost",
    "bsgd_dr",
    "bsgd_ru",
    "bsgd_wu",
    "datasets",
    "hypergradient",
    "load",
    "mse",
    "pipeline",
    "run",
    "save",
    "streams",
    "sweep",
    "theory",
    "tune",
]
