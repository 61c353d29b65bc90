"""The protocols (Learner, Wrapper, Transform, Network) and what every other room is built with.

`sample` is what a learner learns from, `step` one step of a run; `numerics`, `products` and `draws`
serve the inner loop; `checks`, `guards` and `template` guard the doors; `metrics` score. This room
imports from no other.
"""

from jboost.core.learner import Learner, Network, State, Transform, Wrapper
from jboost.core.pytree import DType, Key, Number, model, static
from jboost.core.sample import Sample

__all__ = [
    "DType", "Key", "Learner", "Network", "Number", "Sample", "State", "Transform", "Wrapper",
    "model", "static",
]  # fmt: skip
