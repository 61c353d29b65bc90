"""Base learners, one file per family, and the networks that some of them train.

`sgd` and `newton` are the paper's linear learners, `trainers` and `replay` train a network of
`networks`, `tree` grows regions with a learner in each, and `forest` boosts trees. May import from
`core`.
"""

from jboost.core import Learner
from jboost.learners.forest.boosted import BoostedTrees
from jboost.learners.newton import ForwardNewton, Newton
from jboost.learners.replay import Replay
from jboost.learners.sgd import NLMS, SGD
from jboost.learners.trainers import GaussNewton, Gradient
from jboost.learners.tree.piecewise import PiecewiseLinear

__all__ = ["NLMS", "SGD", "BoostedTrees", "ForwardNewton", "GaussNewton", "Gradient", "Learner"]
__all__ += ["Newton", "PiecewiseLinear", "Replay"]
