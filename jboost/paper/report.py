"""What the paper's theory predicts of the run of a booster, beside what the run did.

>>> import jboost as jb
>>> from jboost.paper import report
>>> model = jb.bsgd_wu(m=4, target_mse=0.1, step_size=0.1)
>>> xs, ds = jb.streams.duffing(1000)
>>> state, trace = jb.run(model, xs, ds, observe=report.observe)
>>> print(report.theory_report(model, trace, xs, ds, kappa=0.3))
1,000 samples, 4 learners, σ_m² 0.1, κ 0.3
...
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from jboost.boosting.booster import Boosted
from jboost.boosting.modes import DataReuse, PoissonReuse, RandomUpdate, Weighted
from jboost.core import State, checks
from jboost.core.step import Info, Trace
from jboost.learners.newton import LeastSquares
from jboost.learners.sgd import NLMS, SGD
from jboost.paper import theory
from jboost.paper.theory import Floats

_RECORDED = ("y", "e", "lam", "delta", "updates")
_MODES: dict[type, theory.Mode] = {
    Weighted: "WU", DataReuse: "DR", RandomUpdate: "RU", PoissonReuse: "RU",
}  # fmt: skip


def observe(state: State, info: Info) -> dict[str, Array]:
    """Record what :func:`theory_report` needs: pass this function to ``run`` as ``observe``."""
    del state
    return {name: info[name] for name in _RECORDED}


@dataclass(frozen=True)
class TheoryReport:
    """A run beside Lemma 1, Theorem 2 and the costs; ``str`` of it is a table. Arrays are (m,)."""

    samples: int  # those that were learned from
    kappa: float  # κ
    target_mse: float  # σ_m²
    weighted_mse: Floats  # Σλe²/Σλ
    weight: Floats  # Λ/T, the mean of λ
    gamma: Floats  # the mean of δ
    zeta2: Floats  # the mean of e²
    weight_bound: Floats  # Theorem 2's bound on `weight` (corrected), nan if there is none
    bound_reasons: tuple[str, ...]  # why there is no bound; empty where there is
    updates: Floats  # made, per sample
    expected_updates: Floats  # what λ leads to, per sample
    lemma1: theory.Lemma1  # M, and the MSE of the mean of the first M learners
    desired_mse: float  # σ_d², which κ and σ_m² imply
    mse: float  # of the model's predictions
    cost: dict[str, float]
    """Operations per sample: "printed" and "corrected" as in :func:`jboost.theory.expected_cost`,
    and "made" by the updates; nan for learners that are neither SGD nor Newton."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and strings, as JSON takes them (nan apart)."""
        record = asdict(self) | {"lemma1": self.lemma1._asdict()}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in record.items()}

    def __str__(self) -> str:
        head = " k  weighted MSE  Λ/T = mean λ  bound on it  updates  expected"
        title = f"{self.samples:,} samples, {len(self.weight)} learners"
        lines = [f"{title}, σ_m² {self.target_mse:.4g}, κ {self.kappa:.4g}", "", head]
        lines.append("─" * len(head))
        for k, weight in enumerate(self.weight):
            sign = "≥ κ" if weight >= self.kappa else "< κ"
            lines.append(
                f"{k + 1:2d}  {_cell(self.weighted_mse[k], 12)}  {_cell(weight, 8)} {sign}"
                f"  {_cell(self.weight_bound[k], 11)}  {_cell(self.updates[k], 7)}"
                f"  {_cell(self.expected_updates[k], 8)}"
            )
        cost = self.cost
        lines += [
            "",
            self._lemma1_in_words(),
            f"Desired MSE implied by κ and σ_m²: {self.desired_mse:.4g}; observed: {self.mse:.4g}.",
            self._theorem2_in_words(),
            f"Work: {self.updates.sum():.4g} updates a step, {self.expected_updates.sum():.4g} "
            f"expected; operations a step: E[C_t] {cost['printed']:.4g} as printed, "
            f"{cost['corrected']:.4g} corrected, {cost['made']:.4g} made.",
        ]
        return "\n".join(lines)

    def _lemma1_in_words(self) -> str:
        lemma = self.lemma1
        if lemma.learners is None:
            return f"Lemma 1: {lemma.reason}."
        holds = "holds" if lemma.mse <= lemma.desired_mse else "does not hold"
        holds += f" ({lemma.reason})" if lemma.reason else ""
        mean = f"the mean of the first M has MSE {lemma.mse:.4g}"
        return f"Lemma 1: M = {lemma.learners}, {mean}; at most {lemma.desired_mse:.4g} {holds}."

    def _theorem2_in_words(self) -> str:
        bounded = np.isfinite(self.weight_bound)
        above = np.sum(bounded & (self.weight > self.weight_bound + 1e-9))
        words = f"Theorem 2: a bound for {bounded.sum()} of {len(bounded)} learners"
        if above:
            words += f", passed by {above} (their errors are not independent)"
        if not bounded.all():
            first = int(np.argmin(bounded))
            words += f"; learner {first + 1}: {self.bound_reasons[first]}"
        return f"{words}."


def theory_report(
    model: Boosted, trace: Trace, xs: ArrayLike, ds: ArrayLike, *, kappa: float = 0.1
) -> TheoryReport:
    """Compare a run with the paper's theory.

    Args:
      model: a booster with one σ_m² for all its learners.
      trace: of ``run(model, xs, ds, …, observe=report.observe)`` from the start.
      xs: (T, r), the inputs of that run.
      ds: (T,), its targets.
      kappa: κ in (0, 1), Lemma 1's share of the weight; the desired MSE is κ + (1 − κ)σ_m².
    """
    checks.instance("model", model, Boosted, "a booster, as boost(…) makes")
    if not isinstance(trace.observed, dict) or not trace.observed.keys() >= {*_RECORDED}:
        raise ValueError("trace must be of run(…, observe=jboost.report.observe); it has no record")
    targets = np.unique(np.asarray(model.emphasis.target_mse, np.float64)).tolist()
    if len(targets) != 1:
        raise ValueError(f"model must have one target_mse for all learners; got {targets}")
    (sm2,) = targets
    learned = ~np.asarray(trace.skipped)
    columns = [trace.observed[name] for name in _RECORDED]
    y, e, lam, delta, updates, d, prediction = (
        np.asarray(column, np.float64)[learned] for column in (*columns, ds, trace.prediction)
    )
    if y.shape != (len(d), model.m):
        raise ValueError(f"trace must hold y of shape (T, {model.m}); got {y.shape}")
    lam = np.minimum(lam, 1)
    total = lam.sum(axis=0)
    weighted_mse = np.full(model.m, np.nan)
    np.divide((lam * e**2).sum(axis=0), total, out=weighted_mse, where=total > 0)
    zeta2 = (e**2).mean(axis=0)
    bound, reasons, gamma = _weight_bounds(model, delta.mean(axis=0), zeta2, sm2)
    expected_updates, cost = _work(model, lam, updates, np.shape(xs)[1])
    lemma1 = theory.lemma1(lam, y, d, kappa, sm2)
    if lemma1.learners is not None and not lemma1.reason and delta.max() > 1:
        lemma1 = lemma1._replace(reason=f"δ reached {delta.max():.3g}, the proof needs at most 1")
    return TheoryReport(
        samples=len(d), kappa=kappa, target_mse=sm2, weighted_mse=weighted_mse,
        weight=lam.mean(axis=0), gamma=gamma, zeta2=zeta2, weight_bound=bound,
        bound_reasons=reasons, updates=updates.mean(axis=0), expected_updates=expected_updates,
        lemma1=lemma1, desired_mse=theory.desired_mse(sm2, kappa),
        mse=float(np.mean((d - prediction) ** 2)), cost=cost,
    )  # fmt: skip


def _weight_bounds(
    model: Boosted, gamma: Floats, zeta2: Floats, sm2: float
) -> tuple[Floats, tuple[str, ...], Floats]:
    """Return Theorem 2's bound for each learner, why it is missing, and the γ it was taken at."""
    emphasis, conditions = model.emphasis, "corrected"
    dependence = np.broadcast_to(np.asarray(emphasis.dependence, np.float64), gamma.shape)
    if emphasis.guarantee is not None:  # Algorithm 1: δ is σ², without spread, and c is 1/2
        gamma = np.broadcast_to(np.asarray(emphasis.guarantee, np.float64), gamma.shape)
        dependence, conditions = np.full(gamma.shape, 0.5), "converged"
    bounds, reasons = np.full(gamma.shape, np.nan), [""] * len(gamma)
    for k, (g, z, c) in enumerate(zip(gamma, zeta2, dependence, strict=True), start=1):
        if k == 1 or c == 0:
            bounds[k - 1] = 1.0
        elif sm2 == 0:
            reasons[k - 1] = "σ_m² = 0"
        elif not 0 < g <= 1:
            reasons[k - 1] = f"the mean of δ is {g:.4g}, not in (0, 1]"
        else:
            point, options = (k, g, z, sm2), {"dependence": c, "conditions": conditions}
            bounds[k - 1] = theory.weight_bound(*point, **options)
            reasons[k - 1] = theory.weight_bound_reason(*point, **options)
    return bounds, tuple(reasons), gamma


def _work(model: Boosted, lam: Floats, updates: Floats, r: int) -> tuple[Floats, dict[str, float]]:
    """Return the expected updates of each learner per sample, and the costs; nan if unknown."""
    learners = model.learner if isinstance(model.learner, tuple) else (model.learner,)
    first_order = all(isinstance(learner, SGD | NLMS) for learner in learners)
    second_order = all(isinstance(learner, LeastSquares) for learner in learners)
    mode, K = _MODES.get(type(model.mode)), getattr(model.mode, "max_reuse", 1)
    unknown: dict[str, float] = dict.fromkeys(("printed", "corrected", "made"), math.nan)
    if mode is None:  # a mode that the user wrote
        return np.full(model.m, math.nan), unknown
    expected = theory.updates(lam, mode, K, corrected=True).mean(axis=0)
    if not (first_order or second_order):
        return expected, unknown
    options: Any = {"mode": mode, "method": "SGD" if first_order else "NM", "max_reuse": K}
    actual = updates.sum(axis=1).mean() * (r if first_order else r * r) + model.m * r
    return expected, {
        "printed": theory.expected_cost(lam, r, **options),
        "corrected": theory.expected_cost(lam, r, **options, corrected=True),
        "made": float(actual),
    }


def _cell(value: float, width: int) -> str:
    return f"{'–':>{width}}" if math.isnan(value) else f"{value:{width}.4g}"
