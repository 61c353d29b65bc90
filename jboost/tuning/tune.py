"""Hyperparameters by gradient descent on the error of whole runs, and what they then achieve.

Settings move in their natural spaces (:mod:`jboost.settings.spaces`): a step size by its logarithm,
a forgetting factor by the logit of 1 − β. What descends is the logarithm of the mean squared error,
so that neither the scale of the targets nor that of a setting matters to the optimiser.

Rows that chose a setting say nothing about it. So settings are chosen on a prefix of the stream, or
on windows that move along it, and scored on the rows after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jboost.core import checks
from jboost.core.errors import ase
from jboost.core.learner import Learner
from jboost.core.step import Observe
from jboost.running.run import checked_stream, run
from jboost.settings import leaves
from jboost.settings import spaces as _spaces
from jboost.settings.surrogates import relaxed
from jboost.tuning.hypergradient import Metric, hypergradient

_Model = TypeVar("_Model", bound=Learner)


class History(NamedTuple):
    """What was tried, in order, and how the choices did on rows that had no part in them.

    value: (n,), the error of each evaluation on the rows it was tuned on.
    parameters: by name, (n, …), the values tried.
    window: (n,), in which window each was evaluated; all 0 where there is one.
    best: (k,), the evaluation with the least error in each of k windows.
    settled: (k,), whether tuning ended because nothing got better, and not because of ``steps``.
    held_out: (k,), the error of each window's choice on the rows after it; NaN without such rows.
    untuned: (k,), the error of the model as it was given on the same rows.
    """

    value: np.ndarray
    parameters: dict[str, np.ndarray]
    window: np.ndarray
    best: np.ndarray
    settled: np.ndarray
    held_out: np.ndarray
    untuned: np.ndarray


def tune(
    model: _Model,
    xs: Any,
    ds: Any,
    key: Any = None,
    *,
    optimizer: Any = None,
    steps: int = 40,
    wrt: str | Iterable[str] = ("step_size",),
    train: float = 0.5,
    windows: int | None = None,
    spaces: Mapping[str, tuple[float, float]] | None = None,
    metric: Metric | None = None,
    observe: Observe | None = None,
    method: str | None = None,
    surrogate: str = "straight-through",
    patience: int = 8,
    tolerance: float = 1e-4,
) -> tuple[_Model, History]:
    """Tune floats of a model by gradient descent; the best model seen, and the history.

    Args:
      model: any learner; its values are where the search starts.
      xs: (T, r) inputs.
      ds: (T,) targets.
      key: a ``jax.random.key``, for models that draw: the same draws at every evaluation.
      optimizer: any optax optimiser; by default ``optax.adam(0.3)``: about a third of a natural
        unit at each evaluation, whatever the size of the slope, so that a step size 10 times off
        is made good in about eight.
      steps: evaluations of value and gradient, at most (in each window).
      wrt: names of floats, as for :func:`jboost.hypergradient`.
      train: the rows to tune on, from the start of the stream: a fraction in (0, 1], or a whole
        number of at least 2. The rows after them are the held-out ones.
      windows: in place of ``train``, k: the stream is cut into k + 1 equal parts; settings are
        tuned on each of the first k, from where the part before left them, and scored on the next.
        The model returned is that of the last.
      spaces: (low, high), an open interval, for floats whose range is not known.
      metric: ``metric(trace, ds) -> scalar``, in place of the mean squared error; it descends
        itself, not its logarithm.
      observe: as for :func:`jboost.run`.
      method: as for :func:`jboost.hypergradient`.
      surrogate: as for :func:`jboost.hypergradient`.
      patience: tuning ends when so many evaluations in a row have not got better …
      tolerance: … by this fraction of the error.

    Descent finds the nearest valley: the error of steps so large that SGD's guard cuts most of them
    is flat or has a valley of its own. Start too low rather than far too high.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> model, history = tune(jb.SGD(step_size=0.3), xs, ds)
    >>> bool(history.held_out[0] < history.untuned[0])
    True
    """
    import optax

    checks.instance("model", model, Learner, "a learner such as bsgd_wu(…) or SGD(step_size=0.1)")
    steps = checks.whole("steps", steps, at_least=1)
    patience = checks.whole("patience", patience, at_least=1)
    tolerance = checks.number("tolerance", tolerance, at_least=0)
    optimizer = optax.adam(0.3) if optimizer is None else optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        raise TypeError(f"optimizer must be one of optax's, as optax.adam(0.3); got {optimizer!r}")
    xs, ds, dtype = checked_stream(xs, ds, jnp.result_type(float))
    parts = _parts(len(xs), train, windows)
    places = leaves.places(model, wrt)
    search = _Search(model, places, _spaces.of(model, places, spaces), metric, observe, surrogate)

    phi = search.start(dtype)
    tried, settled, held_out, untuned = [], [], [], []
    for start, end, stop in parts:
        rows = (xs[start:end], ds[start:end], key)
        found, calm = _descend(search, phi, rows, optimizer, steps, patience, tolerance, method)
        phi = min(found, key=lambda one: one.objective).phi
        tried.append(found)
        settled.append(calm)
        for scores, one in ((held_out, search.at(phi)), (untuned, model)):
            scores.append(search.score(one, xs[start:stop], ds[start:stop], key, end - start))
    return search.plain(phi), _history(search, tried, settled, held_out, untuned)


Natural = dict[str, Array]  # by name, in the natural spaces
Rows = tuple[Any, Any, Any]  # xs, ds and the key


class _Tried(NamedTuple):
    """An evaluation: where, the error there, and what descends: the error or its logarithm."""

    phi: Natural
    value: float
    objective: float


class _Search(NamedTuple):
    """The floats that move, and the error as a function of their natural coordinates."""

    model: Any
    places: dict[str, int]
    spaces: dict[str, _spaces.Space]
    metric: Metric | None
    observe: Observe | None
    surrogate: str

    def start(self, dtype: Any) -> Natural:
        values = leaves.take(self.model, self.places.values())
        return {
            name: _spaces.start(name, self.spaces[name], value, dtype)
            for name, value in zip(self.places, values, strict=True)
        }

    def values(self, phi: Natural) -> Natural:
        return {name: space.value(phi[name]) for name, space in self.spaces.items()}

    def at(self, phi: Natural) -> Any:
        """The model there."""
        return leaves.put(self.model, self.places.values(), self.values(phi).values())

    def plain(self, phi: Natural) -> Any:
        """The model there, with its floats as a user would have written them."""
        values = [np.asarray(value, np.float64) for value in self.values(phi).values()]
        values = [value if value.ndim else float(value) for value in values]
        return leaves.put(self.model, self.places.values(), values)

    def score(self, model: Any, xs: Any, ds: Any, key: Any, skip: int = 0) -> Array:
        """The error of a run on what follows its first ``skip`` rows; NaN where nothing does."""
        if skip == len(ds):
            return jnp.asarray(jnp.nan)
        trace = jax.tree.map(lambda a: a[skip:], run(model, xs, ds, key, observe=self.observe)[1])
        if self.metric is not None:
            return self.metric(trace, ds[skip:])
        return ase(trace.prediction, ds[skip:])[-1]

    def objective(self, phi: Natural, rows: Rows) -> Array:
        return self.descending(self.score(relaxed(self.at(phi), self.surrogate), *rows))

    def descending(self, error: Array) -> Array:
        if self.metric is not None:
            return error
        return jnp.log(jnp.maximum(error, jnp.finfo(error.dtype).tiny))

    def evaluate(self, phi: Natural, rows: Rows, method: str | None) -> tuple[_Tried, Natural]:
        """The error and, in the natural spaces, the slopes of what descends."""
        error, slopes = hypergradient(
            self.at(phi),
            *rows,
            wrt=self.places,
            metric=self.metric,
            observe=self.observe,
            surrogate=self.surrogate,
            method=method,
        )
        objective, factor = jax.value_and_grad(self.descending)(error)
        for name, space in self.spaces.items():
            _, rate = jax.jvp(space.value, (phi[name],), (jnp.ones_like(phi[name]),))
            slopes[name] = factor * slopes[name] * rate
        sound = all(np.isfinite(slope).all() for slope in [objective, *slopes.values()])
        return _Tried(phi, float(error), float(objective) if sound else np.inf), slopes


def _descend(
    search: _Search,
    phi: Natural,
    rows: Rows,
    optimizer: Any,
    steps: int,
    patience: int,
    tolerance: float,
    method: str | None,
) -> tuple[list[_Tried], bool]:
    """All evaluations, and whether the last ones were no better."""
    import optax

    optimizer = optax.with_extra_args_support(optimizer)

    @jax.jit
    def move(slopes: Natural, state: Any, phi: Natural, value: Any, rows: Rows) -> Any:
        def along(phi: Natural) -> Array:  # for those that search along a line
            return search.objective(phi, rows)

        updates, state = optimizer.update(
            slopes, state, phi, value=value, grad=slopes, value_fn=along
        )
        return optax.apply_updates(phi, updates), state

    state = optimizer.init(phi)
    tried: list[_Tried] = []
    best = np.inf
    calm = 0
    for _ in range(steps):
        one, slopes = search.evaluate(phi, rows, method)
        tried.append(one)
        scale = 1.0 if search.metric is None else abs(one.objective)
        calm = 0 if one.objective < best - tolerance * scale else calm + 1
        best = min(best, one.objective) if calm == 0 else best
        if calm >= patience:
            return tried, True
        if np.isfinite(one.objective):
            with jax.numpy_dtype_promotion("standard"):  # optax leans on it
                phi, state = move(slopes, state, phi, one.objective, rows)
        elif len(tried) == 1:
            raise ValueError(
                f"the model as given has an error of {one.value} on the rows to tune on, or no "
                "finite slope there; start from values at which it runs"
            )
        else:  # too far: half-way back to the best so far
            good = min(tried, key=lambda one: one.objective).phi
            phi = jax.tree.map(lambda a, b: (a + b) / 2, phi, good)
    return tried, False


def _parts(T: int, train: Any, windows: int | None) -> list[tuple[int, int, int]]:
    """(start, end, stop) of each window: tuned on start … end, scored on end … stop."""
    if windows is not None:
        windows = checks.whole("windows", windows, at_least=1)
        width = T // (windows + 1)
        if width < 2:
            raise ValueError(
                f"windows must leave at least two rows in each of windows + 1 parts; got {windows} "
                f"for {T} rows"
            )
        first = T - width * (windows + 1)  # all of one length, so that they compile once
        starts = range(first, T - width, width)
        return [(start, start + width, start + 2 * width) for start in starts]
    whole = isinstance(train, int) and not isinstance(train, bool)
    rows = train if whole else round(checks.number("train", train, above=0, at_most=1) * T)
    if T < 2:
        raise ValueError(f"xs must have at least 2 rows to tune on; got {T}")
    if not 2 <= rows <= T:
        raise ValueError(
            f"train must be a fraction of the stream or a number of rows, with 2 to {T} rows; "
            f"got {train!r}"
        )
    return [(0, rows, T)]


def _history(
    search: _Search, tried: list[list[_Tried]], settled: Any, held_out: Any, untuned: Any
) -> History:
    every = [one for found in tried for one in found]
    values = [search.values(one.phi) for one in every]
    firsts = np.cumsum([0, *(len(found) for found in tried[:-1])])
    least = [int(np.argmin([one.objective for one in found])) for found in tried]
    return History(
        value=np.array([one.value for one in every]),
        parameters={name: np.stack([value[name] for value in values]) for name in search.places},
        window=np.repeat(np.arange(len(tried)), [len(found) for found in tried]),
        best=firsts + np.array(least),
        settled=np.array(settled),
        held_out=np.array(held_out, float),
        untuned=np.array(untuned, float),
    )
