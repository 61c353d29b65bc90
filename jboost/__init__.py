"""jboost: boosted online regression in JAX.

Predict a number from a stream, one sample at a time, and learn from each answer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jboost import limits as limits  # first: it looks at what the system allows JAX

# isort: split
from jboost import baselines as baselines
from jboost import engine as engine
from jboost import forecasts as forecasts
from jboost.automatic import auto
from jboost.boosting.boost import boost
from jboost.boosting.models import (
    bnm_dr,
    bnm_ru,
    bnm_wu,
    bpl_dr,
    bpl_ru,
    bpl_wu,
    bsgd_dr,
    bsgd_ru,
    bsgd_wu,
)
from jboost.boosting.modes import DataReuse, PoissonReuse, RandomUpdate, Weighted
from jboost.combiners.convex import BOA, EWA, MLPoly
from jboost.combiners.mean import NSGD, Uniform
from jboost.combiners.refined import Refined, ScaleAlike
from jboost.core import Learner, Transform, model, static
from jboost.core import losses as losses
from jboost.core import metrics as metrics
from jboost.core.squared_errors import ase
from jboost.engine.cache import cache
from jboost.explanations.columns import explain
from jboost.forecasts.forecast import Forecast
from jboost.learners import (
    NLMS,
    SGD,
    AffineProjection,
    BoostedTrees,
    ForwardNewton,
    GaussNewton,
    Gradient,
    Newton,
    PiecewiseLinear,
    Replay,
    SignSignLMS,
    VariableStepLMS,
)
from jboost.learners import networks as networks
from jboost.paper import streams
from jboost.running.run import mse, run
from jboost.transforms import (
    Bias,
    Calendar,
    Impute,
    Lags,
    Past,
    Polynomial,
    RandomFourier,
    Scale,
    ScaleTarget,
    Select,
    Volterra,
)  # fmt: skip
from jboost.transforms.pipelines import pipeline
from jboost.wrappers import detectors as detectors
from jboost.wrappers import flags as flags
from jboost.wrappers import intervals as intervals
from jboost.wrappers.change import OnChange
from jboost.wrappers.delayed import Delayed, Pending
from jboost.wrappers.flags import Flags
from jboost.wrappers.intervals import Intervals
from jboost.wrappers.memory import GrowingMemory
from jboost.wrappers.robust import Huber
from jboost.wrappers.scored import Scored
from jboost.wrappers.selftuning import SelfTuning
from jboost.wrappers.targets import targets
from jboost.wrappers.weights import Budget, WeightColumn

if TYPE_CHECKING:
    from jboost import plots as plots
    from jboost.checkpoints.checkpoint import CheckpointError as CheckpointError
    from jboost.checkpoints.checkpoint import load, save
    from jboost.fleets.fleet import Fleet
    from jboost.paper import datasets, theory
    from jboost.paper import report as report
    from jboost.running.export import export
    from jboost.running.stream import run_stream as run_stream
    from jboost.sweeps.sweep import sweep
    from jboost.tuning.hypergradient import hypergradient
    from jboost.tuning.tune import tune

# Modules without models are loaded when first asked for, which saves a third of the import's time.
# Modules with models are always loaded, because a checkpoint may name any model.
_LATER = {
    "CheckpointError": "jboost.checkpoints.checkpoint",
    "Fleet": "jboost.fleets.fleet",
    "datasets": "jboost.paper.datasets",
    "plots": "jboost.plots",
    "export": "jboost.running.export",
    "hypergradient": "jboost.tuning.hypergradient",
    "load": "jboost.checkpoints.checkpoint",
    "report": "jboost.paper.report",
    "run_stream": "jboost.running.stream",
    "save": "jboost.checkpoints.checkpoint",
    "sweep": "jboost.sweeps.sweep",
    "theory": "jboost.paper.theory",
    "tune": "jboost.tuning.tune",
}

__version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("jboost")
    if name not in _LATER:
        raise AttributeError(f"module 'jboost' has no attribute {name!r}")
    module = import_module(_LATER[name])
    return vars(module).get(name, module)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "__version__"})


__all__ = [
    "BOA", "EWA", "NLMS", "NSGD", "SGD", "AffineProjection", "Bias", "BoostedTrees", "Budget",
    "Calendar", "DataReuse", "Delayed", "Flags", "Fleet", "Forecast", "ForwardNewton",
    "GaussNewton", "Gradient", "GrowingMemory", "Huber", "Impute", "Intervals", "Lags", "Learner",
    "MLPoly", "Newton", "OnChange", "Past", "Pending", "PiecewiseLinear", "PoissonReuse",
    "Polynomial", "RandomFourier", "RandomUpdate", "Refined", "Replay", "Scale", "ScaleAlike",
    "ScaleTarget", "Scored", "Select", "SelfTuning", "SignSignLMS", "Transform", "Uniform",
    "VariableStepLMS", "Volterra", "WeightColumn", "Weighted", "ase", "auto", "bnm_dr", "bnm_ru",
    "bnm_wu", "boost", "bpl_dr", "bpl_ru", "bpl_wu", "bsgd_dr", "bsgd_ru", "bsgd_wu", "cache",
    "datasets", "explain", "export", "hypergradient", "load", "model", "mse", "pipeline", "run",
    "save", "static", "streams", "sweep", "targets", "theory", "tune",
]  # fmt: skip
