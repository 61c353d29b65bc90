"""auto, the model with nothing to tune.

`experts` has its experts and their settings, `kernel` the inputs of one of them, and `mixture` what
the experts share. May import from
`core` to `wrappers`.
"""

from jboost.automatic.experts import SIZES, Seeded, auto, experts, names

__all__ = ["SIZES", "Seeded", "auto", "experts", "names"]
