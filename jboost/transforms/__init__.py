"""Transforms: what stands before a learner and turns its input x into x′.

`scale` puts columns into `units` of their own, `maps` computes new columns and fills gaps,
`calendar` turns times into cycles, `lags` adds earlier samples, `volterra` adds them and their
products, `past` adds earlier answers where they tell something, and `select` chooses columns.
`pipelines` makes one learner of transforms and a learner, or of a learner and the scale of its
target. May import from `core` and `learners`.
"""

from jboost.transforms.calendar import Calendar
from jboost.transforms.lags import Lags
from jboost.transforms.maps import Bias, Impute, Polynomial, RandomFourier
from jboost.transforms.past import Past
from jboost.transforms.pipelines import ScaleTarget
from jboost.transforms.scale import Scale
from jboost.transforms.select import Select
from jboost.transforms.volterra import Volterra

__all__ = [
    "Bias", "Calendar", "Impute", "Lags", "Past", "Polynomial", "RandomFourier", "Scale",
    "ScaleTarget",
    "Select", "Volterra",
]  # fmt: skip
