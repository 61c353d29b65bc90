"""Base learners, one file per family, and the networks that some of them train.

`sgd` and `newton` are the paper's linear learners, `gradient` and `gauss_newton` train a network of
`networks`, and `tree` grows regions with a learner in each. May import from `core`.
"""

from jboost.core import Learner, model, static
from jboost.learners.gauss_newton import GaussNewton, GaussNewtonState
from jboost.learners.gradient import Gradient, GradientState
from jboost.learners.newton import CovarianceState, ForwardNewton, Newton, RootState
from jboost.learners.sgd import NLMS, SGD, LinearState
from jboost.learners.tree.piecewise import PiecewiseLinear
from jboost.learners.tree.state import TreeState

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
