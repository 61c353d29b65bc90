"""Models by name, with defaults that suit a stream of any units. Commands and adapters offer them.

The defaults are meant for standardised numbers, as :func:`wrapped` lets a model see them.
"""

import difflib
import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from jboost.automatic import auto
from jboost.boosting import models
from jboost.core import Learner, checks
from jboost.learners import NLMS, SGD, ForwardNewton, Newton
from jboost.transforms import Bias, Impute, Scale, ScaleTarget
from jboost.transforms.pipelines import pipeline
from jboost.wrappers.intervals import Intervals

DEFAULT = "auto"


class Setting(NamedTuple):
    """A setting of a named model."""

    default: float | int  # an int exactly if the setting is a whole number
    allowed: str  # its range, as text
    meaning: str  # what it is, as text

    def read(self, name: str, value: Any) -> float | int:
        """Return a value, which may be text, as a number of the setting's kind."""
        kind = type(self.default)
        with suppress(TypeError, ValueError, OverflowError):
            number = kind(value)
            if not isinstance(value, float) or number == value:  # int(2.5) is 2
                return number
        requirement = "a whole number" if kind is int else "a number"
        raise ValueError(f"{name} must be {requirement}; got {checks.shown(value)}")


class NamedModel(NamedTuple):
    """A model that has a name."""

    summary: str  # what it is, in a few words
    make: Callable[..., Learner]  # of its settings
    settings: Mapping[str, Setting]  # by name
    raw: bool = False  # whether it takes a stream of any units as it is, and so is not wrapped


# Measured on the first 4,000 rows of seven of the paper's sets: the geometric mean of MSE over the
# target's variance is .387 to .394 for all of bnm_wu's σ_m² between 0.02 and 0.3 at β = 0.999, .391
# for SGD and .390 for bsgd_wu at μ = 0.01, .415 for NLMS at 0.1; β = 0.9999 costs 2 %.
_STEP = {"step_size": Setting(0.01, "> 0", "μ, the learning rate")}
_LARGE_STEP = {"step_size": Setting(0.1, "0 < μ < 2", "μ, the learning rate")}
_NEWTON = {
    "forgetting": Setting(0.999, "0 < β ≤ 1", "β, the memory: about 1/(1 − β) samples"),
    "ridge": Setting(1.0, "> 0", "v, the pull towards zero at the beginning"),
}
_BOOST = {
    "m": Setting(20, "≥ 1", "number of learners"),
    "target_mse": Setting(0.1, "≥ 0", "σ_m², the hoped-for MSE over the target's variance"),
    "dependence": Setting(1.0, "≥ 0", "c, how strongly λ follows the errors"),
}
_BSGD, _BNM = _BOOST | _STEP, _BOOST | _NEWTON
# Measured as above on the first 2,500 rows of six sets: one tree of depth 4 .223; five boosted by
# weighted updates .209, .211 and .215 for σ_m² of 0.03, 0.1 and 0.3, by random updates .208, by
# data reuse .302; bnm_wu .352. β = 0.99 costs 1 %.
_BPL = (
    _BOOST
    | _NEWTON
    | {
        "m": Setting(5, "≥ 1", "number of trees"),
        "depth": Setting(4, "1 to 12", "how often a region may be split again"),
        "ridge": Setting(0.01, "> 0", "v, the pull towards zero at the beginning"),
    }
)
_REUSE = {"max_reuse": Setting(5, "≥ 1", "K, how often a sample is used at most")}
_AUTO = {
    "seed": Setting(0, "≥ 0", "the seed of what is drawn at random"),
}

CATALOGUE: dict[str, NamedModel] = {
    "auto": NamedModel("a mixture with nothing to tune, for any stream", auto, _AUTO, raw=True),
    "auto_small": NamedModel(
        "auto without trees: quicker", functools.partial(auto, "small"), _AUTO, raw=True
    ),
    "auto_large": NamedModel(
        "auto with a longer memory, for long streams",
        functools.partial(auto, "large"),
        _AUTO,
        raw=True,
    ),
    "sgd": NamedModel("stochastic gradient descent", SGD, _STEP),
    "nlms": NamedModel("normalised least mean squares", NLMS, _LARGE_STEP),
    "newton": NamedModel("Newton's method: recursive least squares", Newton, _NEWTON),
    "forward_newton": NamedModel("Vovk–Azoury–Warmuth's algorithm", ForwardNewton, _NEWTON),
    "bsgd_wu": NamedModel("boosted SGD, weighted updates", models.bsgd_wu, _BSGD),
    "bsgd_dr": NamedModel("boosted SGD, data reuse", models.bsgd_dr, _BSGD | _REUSE),
    "bsgd_ru": NamedModel("boosted SGD, random updates", models.bsgd_ru, _BSGD),
    "bnm_wu": NamedModel("boosted Newton, weighted updates", models.bnm_wu, _BNM),
    "bnm_dr": NamedModel("boosted Newton, data reuse", models.bnm_dr, _BNM | _REUSE),
    "bnm_ru": NamedModel("boosted Newton, random updates", models.bnm_ru, _BNM),
    "bpl_wu": NamedModel("boosted trees, weighted updates", models.bpl_wu, _BPL),
    "bpl_dr": NamedModel("boosted trees, data reuse", models.bpl_dr, _BPL | _REUSE),
    "bpl_ru": NamedModel("boosted trees, random updates", models.bpl_ru, _BPL),
}


def resolve(model: Learner | str | None, *, intervals: float | None = None) -> Learner:
    """Return a learner as it is, or the model of that name; None is the default model.

    With ``intervals``, a coverage in (0, 1), it is wrapped in :class:`jboost.Intervals`.
    """
    if intervals is not None:
        if isinstance(model, Intervals):
            raise ValueError(f"the model has intervals already; got intervals={intervals!r} too")
        coverage = checks.number("intervals", intervals, above=0, below=1)
        return Intervals(resolve(model), coverage)
    if isinstance(model, Learner):
        return model
    if model is None or isinstance(model, str):
        return named(model or DEFAULT)
    options = f"a learner such as jb.bnm_wu(…), one of the names {', '.join(CATALOGUE)}, or None"
    raise TypeError(f"model must be {options}; got {checks.shown(model)}")


def check_name(name: str) -> str:
    """Return the name if a model has it; the error otherwise suggests the nearest name."""
    if name in CATALOGUE:
        return name
    near = difflib.get_close_matches(name, CATALOGUE, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(CATALOGUE)}"
    raise ValueError(f"there is no model {name!r}; {hint}")


def named(name: str, settings: Mapping[str, Any] | None = None, *, impute: bool = True) -> Learner:
    """Make the model of that name, wrapped for a stream of any units.

    Args:
      name: one of ``CATALOGUE``.
      settings: numbers, or texts of numbers, by the names of the model's settings.
      impute: whether missing inputs are filled in, as "auto" always does; else they are skipped.

    >>> named("newton", {"forgetting": "0.99"}).learner.learner
    Newton(forgetting=0.99, ridge=1.0, ...)
    """
    chosen = CATALOGUE[check_name(name)]
    values = {setting: spec.default for setting, spec in chosen.settings.items()}
    for setting, value in (settings or {}).items():
        if setting not in values:
            raise ValueError(f"{name} has no setting {setting!r}; it has {', '.join(values)}")
        values[setting] = chosen.settings[setting].read(setting, value)
    model = chosen.make(**values)
    return model if chosen.raw else wrapped(model, impute=impute)


def wrapped(model: Learner, *, impute: bool = True) -> Learner:
    """Show a model standardised inputs with a bias, without gaps, and a standardised target."""
    fill = (Impute(),) if impute else ()
    return pipeline(Scale(), *fill, Bias(), ScaleTarget(model))
