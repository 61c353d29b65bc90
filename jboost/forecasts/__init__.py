"""Forecasts: the next H answers of a stream, at every row.

`forecast` has the forecaster, and `state` its state. `experts` has the estimates that are mixed,
and what they learn. `rows` says what it sees of a row, `seasons` has the calendar, the tables of
usual answers and the kinds of days, `units` the units of answers, `shared` the least squares of all
horizons, `readers` what known columns say, `by_learner` a learner of the user, `mix` the mix of the
estimates, `bands` the intervals, and `ring` what waits for its answer. `columns` prepares x, and
`scores` measures errors by horizon. May import from `core` to `wrappers`.
"""

from jboost.forecasts.columns import with_known
from jboost.forecasts.forecast import Forecast
from jboost.forecasts.scores import Scores, by_horizon

__all__ = ["Forecast", "Scores", "by_horizon", "with_known"]
