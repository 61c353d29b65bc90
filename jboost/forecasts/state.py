"""The state of a forecaster."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jboost.core import State
from jboost.forecasts.bands import BandsState
from jboost.forecasts.mix import MixState
from jboost.forecasts.seasons import Table
from jboost.learners.newton import NewtonState
from jboost.transforms.past import PastState
from jboost.transforms.scale import Units

BEYOND = 0.1  # of the range of the answers so far: estimates lie no farther outside of it


class ForecastState(NamedTuple):
    """The state of a forecaster. All numbers are 0 at the start, but for those of learners."""

    past: PastState  # the latest answers, and the periods found in them
    inputs: Units  # of the columns of x
    targets: Units  # of the answers, as they are and as logarithms
    x: Array  # the inputs of the latest row, in these units, (r,)
    time: Array  # of the latest row
    number: Array  # how many rows there were, and steps that a count of rows left out, int32
    low: Array  # the smallest answer
    high: Array  # the largest answer
    short: Table  # the usual answers of the short cycle
    long: Table  # the usual answers of the long cycle
    unlike: Array  # how unlike weekdays are, (7, 7)
    kinds: Array  # the kinds of the weekdays at the latest row, (7,), int32
    usual: Array  # what was usual for the latest answers, newest first, (LAGS,)
    fading: Array  # what the latest answers differed from that, (TWINS, len(MEMORIES))
    situation: NewtonState  # least squares of an answer by tables and known columns of its row
    shared: State  # the least squares of all horizons, for each twin; () with a learner
    learner: State  # the copies of a learner; () without one
    readers: State  # of known columns; () where none are known
    estimates: Array  # a ring of what each expert, the mix, and its interval's half width said
    at: Array  # where the newest entries of the rings are
    valid: Array  # whether the row h back is in the rings, (H,)
    mix: MixState  # of the experts, for each horizon
    bands: BandsState  # the usual sizes of the errors
    forecast: Array  # of the next H answers, (H,)

    @property
    def begun(self) -> Array:
        """Whether any row was learned."""
        return self.past.samples > 0

    def clipped(self, values: Array) -> Array:
        """Return estimates that lie little outside of the range of the answers so far."""
        beyond = BEYOND * (self.high - self.low)
        return jnp.clip(values, self.low - beyond, self.high + beyond)
