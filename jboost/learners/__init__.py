"""Base learners, one file per family; ``base`` is the protocol they share."""

from jboost.core.learner import Learner
from jboost.core.pytree import model, static
from jboost.learners.gauss_newton import GaussNewton, GaussNewtonState
from jboost.learners.gradient import Gradient, GradientState
from jboost.learners.newton import CovarianceState, ForwardNewton, Newton, RootState
from jboost.learners.sgd import NLMS, SGD, LinearState
from jboost.learners.tree.piecewise import PiecewiseLinear, TreeState

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
