"""Models by name, with defaults that suit a stream of any units: what commands and adapters offer.

A named model is wrapped so that it sees standardised inputs, a bias and a standardised target, with
missing inputs filled in from the past (:func:`wrapped`). The defaults are for that. "auto" does all
of it by itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jboost.automatic import SIZES, auto
from jboost.boosting import models
from jboost.core.learner import Learner
from jboost.learners import NLMS, SGD, ForwardNewton, Newton
from jboost.transforms import Bias, Impute, Scale, ScaleTarget
from jboost.transforms.pipelines import pipeline
from jboost.wrappers.intervals import Intervals

DEFAULT = "auto"


class Parameter(NamedTuple):
    """A setting of a named model."""

    default: float | int
    allowed: str
    meaning: str

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return isinstance(self.default, int)


class Entry(NamedTuple):
    """A model by name: what makes it, its settings, and whether it takes a raw stream as it is."""

    summary: str
    make: Callable[..., Learner]
    parameters: Mapping[str, Parameter]
    raw: bool = False


# Measured on the first 4,000 rows of seven of the paper's sets: the geometric mean of MSE over the
# target's variance is .387 to .394 for all of bnm_wu's σ_m² between 0.02 and 0.3 at β = 0.999, .391
# for SGD and .390 for bsgd_wu at μ = 0.01, .415 for NLMS at 0.1; β = 0.9999 costs 2 %.
_M = {"m": Parameter(20, "≥ 1", "number of learners")}
_TARGET = {"target_mse": Parameter(0.1, "≥ 0", "σ_m², the hoped-for MSE, as part of the variance")}
_C = {"dependence": Parameter(1.0, "≥ 0", "c, how strongly λ follows the errors")}
_STEP = {"step_size": Parameter(0.01, "> 0", "μ, the learning rate")}
_NEWTON = {
    "forgetting": Parameter(0.999, "0 < β ≤ 1", "β, the memory: about 1/(1 − β) samples"),
    "ridge": Parameter(1.0, "> 0", "v, the pull towards zero at the beginning"),
}
_REUSE = {"max_reuse": Parameter(5, "≥ 1", "K, how often a sample is used at most")}
_AUTO = {
    "size": Parameter(SIZES["medium"], "≥ 1", "parameters of its largest networks"),
    "seed": Parameter(0, "≥ 0", "of the draw of their first weights"),
}

CATALOGUE: dict[str, Entry] = {
    "auto": Entry("a mixture with nothing to tune, for streams of any kind", auto, _AUTO, raw=True),
    "sgd": Entry("stochastic gradient descent", SGD, _STEP),
    "nlms": Entry(
        "normalised least mean squares",
        NLMS,
        {"step_size": Parameter(0.1, "0 < μ < 2", "μ, the learning rate")},
    ),
    "newton": Entry("Newton's method: recursive least squares", Newton, _NEWTON),
    "forward_newton": Entry("Vovk–Azoury–Warmuth's forward algorithm", ForwardNewton, _NEWTON),
    "bsgd_wu": Entry("boosted SGD, weighted updates", models.bsgd_wu, _M | _TARGET | _STEP | _C),
    "bsgd_dr": Entry("boosted SGD, data reuse", models.bsgd_dr, _M | _TARGET | _STEP | _REUSE | _C),
    "bsgd_ru": Entry("boosted SGD, random updates", models.bsgd_ru, _M | _TARGET | _STEP | _C),
    "bnm_wu": Entry("boosted Newton, weighted updates", models.bnm_wu, _M | _TARGET | _NEWTON | _C),
    "bnm_dr": Entry(
        "boosted Newton, data reuse", models.bnm_dr, _M | _TARGET | _NEWTON | _REUSE | _C
    ),
    "bnm_ru": Entry("boosted Newton, random updates", models.bnm_ru, _M | _TARGET | _NEWTON | _C),
}


def resolve(model: Learner | str | None, *, intervals: float | None = None) -> Learner:
    """A model as it is, by its name, or the one to take where nothing is said.

    With ``intervals``, in (0, 1), it says where that part of the answers lies: see
    :class:`jboost.Intervals`.
    """
    if intervals is not None:
        if isinstance(model, Intervals):
            raise ValueError(f"the model has intervals of its own; got intervals={intervals!r} too")
        return Intervals(resolve(model), intervals)
    if isinstance(model, Learner):
        return model
    if model is None or isinstance(model, str):
        return named(model or DEFAULT)
    wanted = f"a learner such as jb.bnm_wu(…), one of the names {', '.join(CATALOGUE)}, or None"
    raise TypeError(f"model must be {wanted}; got {model!r}")


def known(name: str) -> str:
    """A name that there is, or an error with the likeliest one meant."""
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(CATALOGUE)}"
        raise ValueError(f"there is no model {name!r}{hint}")
    return name


def named(name: str, settings: Mapping[str, Any] | None = None, *, impute: bool = True) -> Learner:
    """A model by its name, wrapped for a stream of any units.

    Args:
      name: one of ``CATALOGUE``.
      settings: numbers, or texts of them, by the names of the model's parameters.
      impute: whether missing inputs are filled in; otherwise such samples are skipped. "auto"
        always fills in.

    >>> named("newton", {"forgetting": "0.99"}).learner.learner
    Newton(forgetting=0.99, ridge=1.0, ...)
    """
    entry, values = CATALOGUE[known(name)], {}
    for key, value in dict(settings or {}).items():
        if key not in entry.parameters:
            own = ", ".join(entry.parameters) or "none"
            raise ValueError(f"{name} has no setting {key!r}; it has {own}")
        values[key] = _value(key, value, entry.parameters[key])
    values = {key: own.default for key, own in entry.parameters.items()} | values
    made = entry.make(**values)
    return made if entry.raw else wrapped(made, impute=impute)


def wrapped(model: Learner, *, impute: bool = True) -> Learner:
    """A model of standardised numbers, for a stream of any units."""
    filled = (Impute(),) if impute else ()
    return pipeline(Scale(), *filled, Bias(), ScaleTarget(model))


def _value(name: str, value: Any, parameter: Parameter) -> float | int:
    try:
        return int(value) if parameter.whole else float(value)
    except (TypeError, ValueError):
        kind = "a whole number" if parameter.whole else "a number"
        raise ValueError(f"{name} must be {kind}; got {value!r}") from None
