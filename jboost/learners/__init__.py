"""Base learners, one file per family; ``base`` is the protocol they share."""

from jboost.learners.base import Learner, model, static
from jboost.learners.gauss_newton import GaussNewton, GaussNewtonState
from jboost.learners.gradient import Gradient, GradientState
from jboost.learners.newton import CovarianceState, ForwardNewton, Newton, RootState
from jboost.learners.piecewise import PiecewiseLinear, TreeState
from jboost.learners.sgd import NLMS, SGD, LinearState

__all__ = [
    "NLMS",
    "SGD",
    "CovarianceState",
    "ForwardNewton",
    "GaussNewton",
    "GaussNewtonState",
    "Gradient",
    "GradientState",
    "Learner",
    "LinearState",
    "Newton",
    "PiecewiseLinear",
    "RootState",
    "TreeState",
    "model",
    "static",
]
