"""Whether runs may be compiled as one kernel with the JAX that is installed."""

import jax

from jboost.engine.plan import FIRST_TESTED, LAST_TESTED

KERNELS = FIRST_TESTED <= jax.__version_info__[:3] <= LAST_TESTED
