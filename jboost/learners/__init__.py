"""Base learners, one file per family; ``base`` is the protocol they share."""

from jboost.learners.base import Learner, model, static
from jboost.learners.newton import ForwardNewton, Newton, NewtonState
from jboost.learners.sgd import NLMS, SGD, LinearState

__all__ = [
    "NLMS",
    "SGD",
    "ForwardNewton",
    "Learner",
    "LinearState",
    "Newton",
    "NewtonState",
    "model",
    "static",
]
