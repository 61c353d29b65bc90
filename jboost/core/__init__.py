"""The protocols (Learner, Wrapper, Transform, Network) and what every other room is built with.

`sample` is what a learner learns from, `step` one step of a run; `numerics`, `products` and `draws`
serve the inner loop; `checks`, `arrays` and `template` guard the doors; `metrics` and `errors`
score. This room imports from no other.
"""

from jboost.core.learner import Learner, State, Wrapper
from jboost.core.network import Network
from jboost.core.pytree import DType, Key, Number, model, static
from jboost.core.sample import Sample
from jboost.core.transform import Transform

__all__ = [
    "DType",
    "Key",
    "Learner",
    "Network",
    "Number",
    "Sample",
    "State",
    "Transform",
    "Wrapper",
    "model",
    "static",
]
