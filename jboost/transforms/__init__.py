"""What stands before a learner, one file per family; ``base`` is the protocol they share."""

from jboost.core import Transform
from jboost.transforms.held import Held
from jboost.transforms.lags import Lags, LagsState
from jboost.transforms.maps import (
    Bias,
    FourierState,
    Polynomial,
    RandomFourier,
)
from jboost.transforms.missing import Impute
from jboost.transforms.moments import Moments
from jboost.transforms.scale import Range, Scale
from jboost.transforms.select import Select, SelectState
from jboost.transforms.target import ScaledState, ScaleTarget

__all__ = [
    "Bias",
    "FourierState",
    "Held",
    "Impute",
    "Lags",
    "LagsState",
    "Moments",
    "Polynomial",
    "RandomFourier",
    "Range",
    "Scale",
    "ScaleTarget",
    "ScaledState",
    "Select",
    "SelectState",
    "Transform",
]
