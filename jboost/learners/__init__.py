"""Base learners, one file per family; ``base`` is the protocol they share."""

from jboost.learners.base import Learner, model, static
from jboost.learners.newton import CovarianceState, ForwardNewton, Newton, RootState
from jboost.learners.sgd import NLMS, SGD, LinearState

__all__ = [
    "NLMS",
    "SGD",
    "CovarianceState",
    "ForwardNewton",
    "Learner",
    "LinearState",
    "Newton",
    "RootState",
    "model",
    "static",
]
