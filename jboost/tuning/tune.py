"""Gradient descent on the error of whole runs, over settings of a model.

Settings move in natural coordinates (:mod:`jboost.settings.spaces`): a step size by its logarithm,
a forgetting factor by the logit of 1 − β. The logarithm of the mean squared error descends, so that
neither the scale of the targets nor that of a setting matters to the optimiser.

The error on rows that chose a setting is too low an estimate of its error on other rows. So
settings are chosen on a prefix of the stream, or on windows that move along it, and scored on the
rows after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jboost.core import Key, Learner, checks
from jboost.core.numerics import ase
from jboost.core.step import Observe
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
    """Every evaluation, in order, and the error of the choices on rows that had no part in them.

    value: (n,), the error of each evaluation on the rows that it was tuned on.
    parameters: by name, (n, …), the values of the settings.
    window: (n,), the number of the evaluation's window; all 0 where there is one window.
    best: (k,), the evaluation with the least error in each of k windows.
    settled: (k,), whether tuning ended because nothing got better, and not because of ``steps``.
    held_out: (k,), the error of each window's choice on the rows after it; NaN without such rows.
    untuned: (k,), the error of the caller's model on the same rows.
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
) -> tuple[_Model, History]:
    """Tune floats of a model by gradient descent.

    Args:
      model: any learner; the search starts from its values.
      xs: (T, r) inputs.
      ds: (T,) targets.
      key: a ``jax.random.key``, for models that draw: the same draws at every evaluation.
      optimizer: any optax optimiser; by default ``optax.adam(0.3)``. It moves each setting by about
        0.3 natural units at each evaluation, whatever the slope, so that a step size which is wrong
        by a factor of 10 is corrected in about eight evaluations.
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
      observe: as for :func:`jboost.run`.
      method: as for :func:`jboost.hypergradient`.
      surrogate: as for :func:`jboost.hypergradient`.
      patience: tuning ends after this many evaluations in a row that did not get better …
      tolerance: … by this fraction of the error.

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

    checks.instance("model", model, Learner, "a learner such as bsgd_wu(…) or SGD(step_size=0.1)")
    steps = checks.whole("steps", steps, at_least=1)
    patience = checks.whole("patience", patience, at_least=1)
    tolerance = checks.number("tolerance", tolerance, at_least=0)
    optimizer = optax.adam(0.3) if optimizer is None else optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        raise TypeError(f"optimizer must be one of optax's, as optax.adam(0.3); got {optimizer!r}")
    inputs, targets, dtype = checked_stream(xs, ds, jnp.result_type(float))
    bounds = _windows(len(inputs), train, windows)
    places = leaves.places(model, wrt)
    ranges = _spaces.of(model, places, spaces)
    search = _Search(model, places, ranges, metric, observe, surrogate, method)

    phi = search.start(dtype)
    searches, settled, held_out, untuned = [], [], [], []
    for start, end, stop in bounds:
        rows = (inputs[start:end], targets[start:end], key)
        evaluations, stalled = _descend(search, phi, rows, optimizer, steps, patience, tolerance)
        phi = evaluations[_best(evaluations)].phi
        searches.append(evaluations)
        settled.append(stalled)
        rows = (inputs[start:stop], targets[start:stop], key)
        held_out.append(search.score(search.model_at(phi), rows, skip=end - start))
        untuned.append(search.score(model, rows, skip=end - start))
    return search.plain_model_at(phi), _history(search, searches, settled, held_out, untuned)


class _Evaluation(NamedTuple):
    """One evaluation.

    phi: the natural coordinates of the settings.
    value: the error there.
    objective: what descends, the metric or the error's logarithm; ∞ where a slope is not finite.
    """

    phi: Settings
    value: float
    objective: float


def _best(evaluations: list[_Evaluation]) -> int:
    return int(np.argmin([evaluation.objective for evaluation in evaluations]))


class _Search(NamedTuple, Generic[_Model]):
    """The error of a model as a function φ of the natural coordinates of some of its settings.

    model: the model before tuning.
    places, spaces: the place and the space of each setting that moves, by name.
    metric, observe, surrogate, method: the arguments of :func:`tune`.
    """

    model: _Model
    places: dict[str, int]
    spaces: dict[str, _spaces.Space]
    metric: Metric | None
    observe: Observe | None
    surrogate: str
    method: str | None

    def start(self, dtype: DTypeLike) -> Settings:
        values = leaves.take(self.model, self.places.values())
        return {
            name: _spaces.start(name, self.spaces[name], value, dtype)
            for name, value in zip(self.places, values, strict=True)
        }

    def values(self, phi: Settings) -> Settings:
        return {name: space.value(phi[name]) for name, space in self.spaces.items()}

    def model_at(self, phi: Settings) -> _Model:
        return leaves.put(self.model, self.places.values(), self.values(phi).values())

    def plain_model_at(self, phi: Settings) -> _Model:
        """The model at φ, with its floats as Python numbers or NumPy arrays of float64."""
        values = [np.asarray(value, np.float64) for value in self.values(phi).values()]
        values = [value if value.ndim else float(value) for value in values]
        return leaves.put(self.model, self.places.values(), values)

    def score(self, model: Learner, rows: Rows, skip: int = 0) -> Any:
        """The error of a run on the rows after the first ``skip``; NaN if there are none."""
        xs, ds, key = rows
        if skip == len(ds):
            return jnp.asarray(jnp.nan)
        trace = run(model, xs, ds, key, observe=self.observe)[1]
        trace, ds = jax.tree.map(lambda array: array[skip:], (trace, ds))
        return ase(trace.prediction, ds)[-1] if self.metric is None else self.metric(trace, ds)

    def objective(self, error: Array) -> Array:
        if self.metric is not None:
            return error
        return jnp.log(jnp.maximum(error, jnp.finfo(error.dtype).tiny))

    def evaluate(self, phi: Settings, rows: Rows) -> tuple[_Evaluation, Settings]:
        """The evaluation at φ, and the slopes of the objective in the natural coordinates."""
        error, slopes = hypergradient(
            self.model_at(phi),
            *rows,
            wrt=self.places,
            metric=self.metric,
            observe=self.observe,
            surrogate=self.surrogate,
            method=self.method,
        )
        objective, factor = jax.value_and_grad(self.objective)(error)
        for name, space in self.spaces.items():
            _, rate = jax.jvp(space.value, (phi[name],), (jnp.ones_like(phi[name]),))
            slopes[name] = factor * slopes[name] * rate
        finite = all(np.isfinite(number).all() for number in [objective, *slopes.values()])
        return _Evaluation(phi, float(error), float(objective) if finite else np.inf), slopes


def _descend(
    search: _Search[Any],
    phi: Settings,
    rows: Rows,
    optimizer: optax.GradientTransformation,
    steps: int,
    patience: int,
    tolerance: float,
) -> tuple[list[_Evaluation], bool]:
    """All evaluations, and whether the last ones were no better."""
    import optax

    optimizer = optax.with_extra_args_support(optimizer)

    @jax.jit
    def move(slopes: Settings, state: Any, phi: Settings, value: float, rows: Rows) -> Any:
        def value_fn(phi: Settings) -> Array:  # for optimisers that search along a line
            model = relaxed(search.model_at(phi), search.surrogate)
            return search.objective(search.score(model, rows))

        line_search: Any = {"value": value, "grad": slopes, "value_fn": value_fn}
        updates, state = optimizer.update(slopes, state, phi, **line_search)
        return optax.apply_updates(phi, updates), state

    state = optimizer.init(phi)
    evaluations: list[_Evaluation] = []
    least, no_better = np.inf, 0
    for _ in range(steps):
        evaluation, slopes = search.evaluate(phi, rows)
        evaluations.append(evaluation)
        objective = evaluation.objective
        # A difference of logarithms is a fraction already.
        margin = tolerance * (1.0 if search.metric is None else abs(objective))
        if objective < least - margin:
            least, no_better = objective, 0
        else:
            no_better += 1
        if no_better >= patience:
            return evaluations, True
        if np.isfinite(objective):
            with jax.numpy_dtype_promotion("standard"):  # optax relies on it
                phi, state = move(slopes, state, phi, objective, rows)
        elif len(evaluations) == 1:
            raise ValueError(
                f"the model as given has an error of {evaluation.value} on the rows to tune on, or "
                "no finite slope there; start from values at which it runs"
            )
        else:  # too far: go half-way back to the best evaluation
            best = evaluations[_best(evaluations)].phi
            phi = jax.tree.map(lambda a, b: (a + b) / 2, phi, best)
    return evaluations, False


def _windows(T: int, train: float, windows: int | None) -> list[tuple[int, int, int]]:
    """(start, end, stop) of each window: it is tuned on start … end and scored on end … stop."""
    if windows is not None:
        windows = checks.whole("windows", windows, at_least=1)
        width = T // (windows + 1)
        if width < 2:
            raise ValueError(
                f"windows must leave at least two rows in each of windows + 1 parts; got {windows} "
                f"for {T} rows"
            )
        first = T - width * (windows + 1)  # all windows have one length, so that they compile once
        starts = range(first, T - width, width)
        return [(start, start + width, start + 2 * width) for start in starts]
    if T < 2:
        raise ValueError(f"xs must have at least 2 rows to tune on; got {T}")
    if isinstance(train, int) and not isinstance(train, bool):
        rows = train
    else:
        rows = round(checks.number("train", train, above=0, at_most=1) * T)
    if not 2 <= rows <= T:
        raise ValueError(
            f"train must be a fraction of the stream or a number of rows, with 2 to {T} rows; "
            f"got {train!r}"
        )
    return [(0, rows, T)]


def _history(
    search: _Search[Any],
    searches: list[list[_Evaluation]],
    settled: list[bool],
    held_out: list[ArrayLike],
    untuned: list[ArrayLike],
) -> History:
    lengths = [len(evaluations) for evaluations in searches]
    every = [evaluation for evaluations in searches for evaluation in evaluations]
    values = [search.values(evaluation.phi) for evaluation in every]
    return History(
        value=np.array([evaluation.value for evaluation in every]),
        parameters={name: np.stack([value[name] for value in values]) for name in search.places},
        window=np.repeat(np.arange(len(lengths)), lengths),
        best=np.cumsum([0, *lengths[:-1]]) + np.array([*map(_best, searches)]),
        settled=np.array(settled),
        held_out=np.array(held_out, float),
        untuned=np.array(untuned, float),
    )
