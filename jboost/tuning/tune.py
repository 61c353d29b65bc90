"""Gradient descent on the error of whole runs, over settings of a model.

Settings move in natural coordinates (:mod:`jboost.settings.spaces`), and the logarithm of the mean
squared error descends, so that no scale of targets or settings matters to the optimiser.

Settings are chosen on a prefix of the stream, or on windows that move along it, and scored on the
rows after: the error on rows that chose a setting is too low an estimate of its error elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jboost.core import Key, Learner, checks
from jboost.core.learner import instance
from jboost.core.progress import Progress
from jboost.core.squared_errors import mean_squared_error
from jboost.core.step import Observe, pairs
from jboost.running.run import checked_stream, run
from jboost.settings import leaves
from jboost.settings import spaces as _spaces
from jboost.settings.surrogates import relaxed
from jboost.tuning.hypergradient import Metric, hypergradient

if TYPE_CHECKING:
    import optax

_Model = TypeVar("_Model", bound=Learner)
Settings = dict[str, Array]  # by name: values, natural coordinates, or slopes in them
Rows = tuple[Any, Any, Array | None]  # arrays xs and ds, and the key


class History(NamedTuple):
    """All n evaluations, in order, and how the choices of k windows do on the rows after them."""

    value: np.ndarray  # (n,), the error on the rows that were tuned on
    parameters: dict[str, np.ndarray]  # by name, (n, …), the values of the settings
    window: np.ndarray  # (n,), the number of the window; all 0 where there is one window
    best: np.ndarray  # (k,), the evaluation with the least error in each window
    settled: np.ndarray  # (k,), whether tuning ended before ``steps``: nothing got better
    held_out: np.ndarray  # (k,), the error of the choice on the rows after; NaN without such rows
    untuned: np.ndarray  # (k,), the error of the caller's model on the same rows


def tune(
    model: _Model,
    xs: ArrayLike,
    ds: ArrayLike,
    key: Key = None,
    *,
    optimizer: optax.GradientTransformation | None = None,
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
    progress: bool | None = None,
) -> tuple[_Model, History]:
    """Tune floats of a model by gradient descent.

    Args:
      model: any learner; the search starts from its values.
      xs: (T, r) inputs.
      ds: (T,) targets.
      key: a ``jax.random.key``, for models that draw: the same draws at every evaluation.
      optimizer: any optax optimiser; by default ``optax.adam(0.3)``. It moves each setting by about
        0.3 natural units at each evaluation, whatever the slope: a step size that is wrong by a
        factor of 10 is corrected in about eight evaluations.
      steps: the largest number of evaluations of value and gradient (in each window).
      wrt: names of floats, as for :func:`jboost.hypergradient`.
      train: the rows to tune on, from the start of the stream: a fraction in (0, 1], or a whole
        number of at least 2. The rows after them are held out.
      windows: a whole number k, in place of ``train``: the stream is cut into k + 1 equal windows.
        Settings are tuned on each of the first k, from the choice of the window before, and scored
        on the next. The returned model has the last choice.
      spaces: (low, high), an open interval, for floats whose range is not known.
      metric: ``metric(trace, ds) -> scalar``, which descends in place of the logarithm of the mean
        squared error.
      observe, method, surrogate: as for :func:`jboost.hypergradient`.
      patience: tuning ends after this many evaluations in a row that did not get better …
      tolerance: … by this fraction of the error.
      progress: whether to report on standard error; by default on a terminal and in a notebook.

    Returns:
      The best model that was evaluated, and the history of all evaluations.

    Descent finds the nearest valley. Where steps are so large that SGD's guard cuts most of them,
    the error is flat or has a valley of its own: start too low rather than far too high.

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(2000)
    >>> model, history = tune(jb.SGD(step_size=0.3), xs, ds)
    >>> bool(history.held_out[0] < history.untuned[0])
    True
    """
    import optax

    instance("model", model)
    steps = checks.whole("steps", steps, at_least=1)
    patience = checks.whole("patience", patience, at_least=1)
    tolerance = checks.number("tolerance", tolerance, at_least=0)
    if progress is not None:
        progress = checks.flag("progress", progress)
    optimizer = optax.adam(0.3) if optimizer is None else optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        got = checks.shown(optimizer)
        raise TypeError(f"optimizer must be one of optax's, as optax.adam(0.3); got {got}")
    inputs, targets, dtype = checked_stream(xs, ds, jnp.result_type(float))
    places = leaves.places(model, wrt)
    ranges = _spaces.of(model, places, spaces)
    starts = zip(ranges.items(), leaves.take(model, places.values()), strict=True)
    phi = {name: _spaces.start(name, space, value, dtype) for (name, space), value in starts}
    search = _Search(model, places, ranges, metric, observe, surrogate, method)

    evaluations: list[_Evaluation] = []
    window, best, settled, held_out, untuned = [], [], [], [], []
    cuts = _windows(len(inputs), train, windows)
    with Progress("tune", steps * len(cuts), progress, unit="evaluations") as bar:
        bar.compiling()
        for number, (start, end, stop) in enumerate(cuts):
            rows = (inputs[start:end], targets[start:end], key)
            tried, stalled = _descend(search, phi, rows, optimizer, steps, patience, tolerance, bar)
            bar.total -= steps - len(tried)
            best.append(len(evaluations) + _best(tried))
            evaluations += tried
            window += [number] * len(tried)
            settled.append(stalled)
            phi = evaluations[best[-1]].phi
            rows = (inputs[start:stop], targets[start:stop], key)
            held_out.append(search.score(search.model_at(phi), rows, skip=end - start))
            untuned.append(search.score(model, rows, skip=end - start))
    settings = [search.values(evaluation.phi) for evaluation in evaluations]
    value = np.array([evaluation.value for evaluation in evaluations])
    parameters = {name: np.stack([values[name] for values in settings]) for name in places}
    choices = np.array(window), np.array(best), np.array(settled)
    scores = np.array(held_out, float), np.array(untuned, float)
    history = History(value, parameters, *choices, *scores)
    chosen = [np.asarray(value, np.float64) for value in settings[best[-1]].values()]
    chosen = [value if value.ndim else float(value) for value in chosen]
    return leaves.put(model, places.values(), chosen), history


class _Evaluation(NamedTuple):
    phi: Settings  # the natural coordinates of the settings
    value: float  # the error there
    objective: float  # what descends, the metric or log error; ∞ where a slope is not finite


def _best(evaluations: list[_Evaluation]) -> int:
    return int(np.argmin([evaluation.objective for evaluation in evaluations]))


class _Search(NamedTuple, Generic[_Model]):
    """The error of a model as a function of φ, the natural coordinates of some of its settings."""

    model: _Model  # the model before tuning
    places: dict[str, int]  # the place of each setting that moves, by name
    spaces: dict[str, _spaces.Space]  # the space of each setting that moves, by name
    metric: Metric | None  # this and the fields below are arguments of `tune`
    observe: Observe | None
    surrogate: str
    method: str | None

    def values(self, phi: Settings) -> Settings:
        return {name: space.value(phi[name]) for name, space in self.spaces.items()}

    def model_at(self, phi: Settings) -> _Model:
        return leaves.put(self.model, self.places.values(), self.values(phi).values())

    def score(self, model: Learner, rows: Rows, skip: int = 0) -> Any:
        """Return the error of a run on the rows after the first ``skip``; NaN if there are none."""
        xs, ds, key = rows
        if skip == len(ds):
            return jnp.asarray(jnp.nan)
        trace = run(model, xs, ds, key, observe=self.observe)[1]
        trace, ds = jax.tree.map(lambda array: array[skip:], (trace, ds))
        metric = self.metric or (lambda trace, ds: mean_squared_error(*pairs(trace, ds)))
        return metric(trace, ds)

    def objective(self, error: Array) -> Array:
        if self.metric is not None:
            return error
        return jnp.log(jnp.maximum(error, jnp.finfo(error.dtype).tiny))

    def evaluate(self, phi: Settings, rows: Rows) -> tuple[_Evaluation, Settings]:
        """Return the evaluation at φ, and the slopes of the objective in natural coordinates."""
        options: Any = {"metric": self.metric, "observe": self.observe, "method": self.method}
        model, surrogate = self.model_at(phi), self.surrogate
        error, slopes = hypergradient(model, *rows, self.places, surrogate=surrogate, **options)
        objective, factor = jax.value_and_grad(self.objective)(error)
        for name, space in self.spaces.items():
            _, rate = jax.jvp(space.value, (phi[name],), (jnp.ones_like(phi[name]),))
            slopes[name] = factor * slopes[name] * rate
        finite = all(np.isfinite(number).all() for number in [objective, *slopes.values()])
        return _Evaluation(phi, float(error), float(objective) if finite else np.inf), slopes


def _descend(
    search: _Search[Any], phi: Settings, rows: Rows, optimizer: optax.GradientTransformation,
    steps: int, patience: int, tolerance: float, bar: Progress,
) -> tuple[list[_Evaluation], bool]:  # fmt: skip
    """Return all evaluations, and whether the last ones were no better."""
    import optax

    optimizer = optax.with_extra_args_support(optimizer)
    state = optimizer.init(phi)

    @jax.jit
    def move(slopes: Settings, state: Any, phi: Settings, value: float, rows: Rows) -> Any:
        def value_fn(phi: Settings) -> Array:  # for optimisers that search along a line
            model = relaxed(search.model_at(phi), search.surrogate)
            return search.objective(search.score(model, rows))

        line_search: Any = {"value": value, "grad": slopes, "value_fn": value_fn}
        updates, state = optimizer.update(slopes, state, phi, **line_search)
        return optax.apply_updates(phi, updates), state

    evaluations: list[_Evaluation] = []
    least, no_better = np.inf, 0
    for _ in range(steps):
        evaluation, slopes = search.evaluate(phi, rows)
        evaluations.append(evaluation)
        bar.add(1, f"error {evaluation.value:.4g}")
        objective = evaluation.objective
        # A difference of logarithms is a fraction already.
        margin = tolerance * (1.0 if search.metric is None else abs(objective))
        better = objective < least - margin
        least, no_better = (objective, 0) if better else (least, no_better + 1)
        if no_better >= patience:
            return evaluations, True
        if np.isfinite(objective):
            with jax.numpy_dtype_promotion("standard"):  # optax relies on it
                phi, state = move(slopes, state, phi, objective, rows)
        elif len(evaluations) == 1:
            got = f"the model has an error of {evaluation.value}, or a slope that is not finite"
            raise ValueError(f"{got}, on the rows to tune on; start from values at which it runs")
        else:  # too far: go half-way back to the best evaluation
            best = evaluations[_best(evaluations)].phi
            phi = jax.tree.map(lambda a, b: (a + b) / 2, phi, best)
    return evaluations, False


def _windows(T: int, train: float, windows: int | None) -> list[tuple[int, int, int]]:
    """Return (start, end, stop) of each window, tuned on start … end, scored on end … stop."""
    if windows is not None:
        windows = checks.whole("windows", windows, at_least=1)
        width = T // (windows + 1)
        if width < 2:
            needed = f"at least two rows in each of {windows + 1} windows"
            raise ValueError(f"windows must leave {needed}; got windows={windows} for {T} rows")
        first = T - width * (windows + 1)  # all windows have one length, so that they compile once
        starts = range(first, T - width, width)
        return [(start, start + width, start + 2 * width) for start in starts]
    rows = train
    if not isinstance(train, int) or isinstance(train, bool):
        rows = round(checks.number("train", train, above=0, at_most=1) * T)
    if not 2 <= rows <= T:
        allowed = "a fraction of the stream or a number of rows, at least 2 rows"
        raise ValueError(f"train must be {allowed}; got {checks.shown(train)} for {T} rows")
    return [(0, int(rows), T)]
