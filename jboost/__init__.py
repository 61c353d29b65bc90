"""jboost: boosted online regression in JAX.

Predict a number from a stream, one sample at a time, and learn from each answer.
"""

from jboost import baselines as baselines
from jboost import datasets, streams, theory
from jboost import engine as engine
from jboost import metrics as metrics
from jboost import networks as networks
from jboost.auto import auto
from jboost.boost import boost
from jboost.checkpoints.checkpoint import CheckpointError as CheckpointError
from jboost.checkpoints.checkpoint import load, save
from jboost.combiners.aggregate import BOA, EWA, MLPoly
from jboost.combiners.combine import NSGD, Uniform
from jboost.combiners.refine import Refined
from jboost.driver import run_stream as run_stream
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
from jboost.reports import report as report
from jboost.run import ase, mse, run
from jboost.sweeps.sweep import sweep
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
from jboost.tuning.hypergradient import hypergradient
from jboost.tuning.selftuning import SelfTuning
from jboost.tuning.tune import tune
from jboost.wrappers import intervals as intervals
from jboost.wrappers import multi as multi
from jboost.wrappers.change import OnChange
from jboost.wrappers.delayed import Delayed, Pending
from jboost.wrappers.intervals import Intervals
from jboost.wrappers.robust import Huber
from jboost.wrappers.scored import Scored
from jboost.wrappers.weights import Budget, WeightColumn

__version__: str


def __getattr__(name: str) -> str:
    """The version when it is asked for: to look it up takes a tenth of the import."""
    if name != "__version__":
        raise AttributeError(f"module 'jboost' has no attribute {name!r}")
    from importlib.metadata import version

    return version("jboost")


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
