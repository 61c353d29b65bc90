"""Transforms: what stands before a learner and turns its input x into x′.

`scale` puts columns into units of their own (`moments` and `held` follow those units), `missing`
fills gaps, `maps` computes new columns, `lags` adds earlier samples, `select` chooses columns and
`target` scales the target. `pipelines` makes one learner of transforms and a learner. May import
from `core` and `learners`.
"""

from jboost.transforms.lags import Lags
from jboost.transforms.maps import Bias, Polynomial, RandomFourier
from jboost.transforms.missing import Impute
from jboost.transforms.scale import Scale
from jboost.transforms.select import Select
from jboost.transforms.target import ScaleTarget

__all__ = [
    "Bias",
    "Impute",
    "Lags",
    "Polynomial",
    "RandomFourier",
    "Scale",
    "ScaleTarget",
    "Select",
]
