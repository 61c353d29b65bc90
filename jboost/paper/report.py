"""What the paper's theory says of one run of a booster, beside what the run did.

>>> import jboost as jb
>>> from jboost.paper import report
>>> model = jb.bsgd_wu(m=4, target_mse=0.1, step_size=0.1)
>>> xs, ds = jb.streams.duffing(1000)
>>> state, trace = jb.run(model, xs, ds, observe=report.observe)
>>> print(report.theory_report(model, trace, xs, ds, kappa=0.3))
1,000 samples, 4 learners, σ_m² 0.1, κ 0.3
...
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jboost.boosting.booster import Boosted
from jboost.boosting.modes import DataReuse, PoissonReuse, RandomUpdate, Weighted
from jboost.core.step import Info, Trace
from jboost.learners.newton import LeastSquares
from jboost.learners.sgd import NLMS, SGD
from jboost.paper import theory

Array = NDArray[np.float64]


def observe(state: Any, info: Info) -> dict[str, Any]:
    """What :func:`theory_report` needs: pass it to ``run`` as ``observe``."""
    del state
    return {name: info[name] for name in ("y", "e", "lam", "delta", "updates")}


@dataclass(frozen=True)
class TheoryReport:
    """One run against Lemma 1, Theorem 2 and the costs; ``str`` of it is a table.

    Per learner, (m,): ``weighted_mse`` Σλe²/Σλ; ``weight`` Λ/T; ``gamma`` the mean of δ; ``zeta2``
    the mean of e²; ``weight_bound`` Theorem 2's bound on the mean of λ under the corrected
    conditions, nan with the reason in ``bound_reasons`` where there is none; ``updates`` made a
    step and ``expected_updates`` by λ.

    ``lemma1`` has M and the MSE of the mean of the first M learners; ``desired_mse`` is what κ and
    σ_m² imply, ``mse`` what the model's own predictions have. ``cost`` is in operations a step: as
    printed, corrected (whole repeats, and the estimates counted), and made; nan for learners that
    are neither SGD nor Newton.
    """

    samples: int
    kappa: float
    target_mse: float
    weighted_mse: Array
    weight: Array
    gamma: Array
    zeta2: Array
    weight_bound: Array
    bound_reasons: tuple[str, ...]
    updates: Array
    expected_updates: Array
    lemma1: theory.Lemma1
    desired_mse: float
    mse: float
    cost: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings, as JSON takes them (nan apart)."""
        record = asdict(self) | {"lemma1": self.lemma1._asdict()}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in record.items()}

    def __str__(self) -> str:
        m, sm2 = len(self.weight), self.target_mse
        head = " k  weighted MSE  Λ/T = mean λ  bound on it  updates  expected"
        lines = [
            f"{self.samples:,} samples, {m} learners, σ_m² {sm2:.4g}, κ {self.kappa:.4g}",
            "",
            head,
            "─" * len(head),
        ]
        for k in range(m):
            sign = "≥ κ" if self.weight[k] >= self.kappa else "< κ"
            lines.append(
                f"{k + 1:2d}  {_cell(self.weighted_mse[k], 12)}  {_cell(self.weight[k], 8)} {sign}"
                f"  {_cell(self.weight_bound[k], 11)}  {_cell(self.updates[k], 7)}"
                f"  {_cell(self.expected_updates[k], 8)}"
            )
        return "\n".join([*lines, "", *self._words()])

    def _words(self) -> list[str]:
        one, cost = self.lemma1, self.cost
        if one.learners is None:
            lemma = [f"Lemma 1: {one.reason}."]
        else:
            held = "holds" if one.mse <= one.desired_mse else "does not hold"
            lemma = [
                f"Lemma 1: M = {one.learners}, the mean of the first M has MSE {one.mse:.4g}; "
                f"at most {one.desired_mse:.4g} {held}{f' ({one.reason})' if one.reason else ''}.",
            ]
        gaps = [k for k, reason in enumerate(self.bound_reasons, start=1) if reason]
        bounded = np.isfinite(self.weight_bound)
        above = np.flatnonzero(bounded & (self.weight > self.weight_bound + 1e-9)) + 1
        second = f"Theorem 2: a bound for {bounded.sum()} of {len(self.weight)} learners"
        if above.size:
            second += f", passed by {above.size} (their errors are not independent)"
        if gaps:
            second += f"; learner {gaps[0]}: {self.bound_reasons[gaps[0] - 1]}"
        return [
            *lemma,
            f"Desired MSE implied by κ and σ_m²: {self.desired_mse:.4g}; observed: {self.mse:.4g}.",
            f"{second}.",
            f"Work: {self.updates.sum():.4g} updates a step, {self.expected_updates.sum():.4g} "
            f"expected; operations a step: E[C_t] {cost['printed']:.4g} as printed, "
            f"{cost['corrected']:.4g} corrected, {cost['made']:.4g} made.",
        ]


def theory_report(
    model: Boosted, trace: Trace, xs: Any, ds: Any, *, kappa: float = 0.1
) -> TheoryReport:
    """Hold a run against the paper's theory.

    Args:
      model: a booster with one σ_m² for all its learners.
      trace: of ``run(model, xs, ds, …, observe=report.observe)`` from the start.
      xs: (T, r), the inputs of that run.
      ds: (T,), its targets.
      kappa: κ in (0, 1), Lemma 1's share of the weight; the desired MSE is κ + (1 − κ)σ_m².
    """
    if not isinstance(model, Boosted):
        raise TypeError(f"model must be a booster, as boost(…) makes; got {type(model).__name__}")
    wanted = ("y", "e", "lam", "delta", "updates")
    if not isinstance(trace.observed, dict) or any(part not in trace.observed for part in wanted):
        raise ValueError(
            "trace must be of run(…, observe=jboost.report.observe); it lacks the record"
        )
    target = np.unique(np.asarray(model.emphasis.target_mse, np.float64))
    if target.size != 1:
        raise ValueError(f"model must have one target_mse for all learners; got {target.tolist()}")
    good = ~np.asarray(trace.skipped)
    y, e, lam, delta, updates = (np.asarray(trace.observed[p], np.float64)[good] for p in wanted)
    d, prediction = (np.asarray(a, np.float64)[good] for a in (ds, trace.prediction))
    if y.shape != (len(d), model.m):
        raise ValueError(f"trace must hold y of shape (T, {model.m}); got {y.shape}")
    r = int(np.shape(xs)[1])

    lam = np.minimum(lam, 1)
    total = lam.sum(axis=0)
    weighted = np.divide(
        (lam * e**2).sum(axis=0), total, out=np.full(model.m, np.nan), where=total > 0
    )
    zeta2, gamma = (e**2).mean(axis=0), delta.mean(axis=0)
    bound, reasons, gamma = _weight_bounds(model, gamma, zeta2, float(target[0]))
    lemma = theory.lemma1(lam, y, d, kappa, float(target[0]))
    if lemma.learners is not None and not lemma.reason and delta.max() > 1:
        lemma = lemma._replace(reason=f"δ reached {delta.max():.3g}, the proof needs at most 1")
    return TheoryReport(
        samples=len(d),
        kappa=kappa,
        target_mse=float(target[0]),
        weighted_mse=weighted,
        weight=lam.mean(axis=0),
        gamma=gamma,
        zeta2=zeta2,
        weight_bound=bound,
        bound_reasons=reasons,
        updates=updates.mean(axis=0),
        expected_updates=_expected_updates(model, lam),
        lemma1=lemma,
        desired_mse=theory.desired_mse(float(target[0]), kappa),
        mse=float(np.mean((d - prediction) ** 2)),
        cost=_cost(model, lam, updates, r),
    )


def _weight_bounds(
    model: Boosted, gamma: Array, zeta2: Array, target: float
) -> tuple[Array, tuple[str, ...], Array]:
    """Theorem 2's bound for each learner, why it is missing, and the γ it was taken at."""
    emphasis = model.emphasis
    conditions: theory.Conditions = "corrected"
    dependence = np.broadcast_to(np.asarray(emphasis.dependence, np.float64), gamma.shape)
    if emphasis.guarantee is not None:  # Algorithm 1: δ is σ², without spread, and c is 1/2
        gamma = np.broadcast_to(np.asarray(emphasis.guarantee, np.float64), gamma.shape)
        dependence, conditions = np.full(gamma.shape, 0.5), "converged"
    bounds, reasons = np.full(gamma.shape, np.nan), []
    for k, (g, z, c) in enumerate(zip(gamma, zeta2, dependence, strict=True), start=1):
        if k == 1 or c == 0:
            bounds[k - 1], reason = 1.0, ""
        elif target == 0:
            reason = "σ_m² = 0"
        elif not 0 < g <= 1:
            reason = f"the mean of δ is {g:.4g}, not in (0, 1]"
        else:
            point = (k, float(g), float(z), target)
            options: Any = {"dependence": float(c), "conditions": conditions}
            bounds[k - 1] = theory.weight_bound(*point, **options)
            reason = theory.weight_bound_reason(*point, **options)
        reasons.append(reason)
    return bounds, tuple(reasons), gamma


def _expected_updates(model: Boosted, lam: Array) -> Array:
    match model.mode:
        case Weighted():
            return np.ones(model.m)
        case DataReuse(max_reuse=K):
            return np.ceil(K * lam).mean(axis=0)
        case RandomUpdate() | PoissonReuse():
            return lam.mean(axis=0)
    return np.full(model.m, math.nan)


def _cost(model: Boosted, lam: Array, updates: Array, r: int) -> dict[str, float]:
    """E[C_t] as printed and corrected, and the same count from the updates that were made."""
    learners = model.learner if isinstance(model.learner, tuple) else (model.learner,)
    first = all(isinstance(one, (SGD, NLMS)) for one in learners)
    second = all(isinstance(one, LeastSquares) for one in learners)
    modes = {Weighted: "WU", DataReuse: "DR", RandomUpdate: "RU", PoissonReuse: "RU"}
    if not (first or second) or type(model.mode) not in modes:
        return dict.fromkeys(("printed", "corrected", "made"), math.nan)
    K = model.mode.max_reuse if isinstance(model.mode, DataReuse) else 1
    options: Any = {
        "mode": modes[type(model.mode)],
        "method": "SGD" if first else "NM",
        "max_reuse": K,
    }
    printed, corrected = (
        theory.expected_cost(lam, r, **options, corrected=c) for c in (False, True)
    )
    each = r if first else r * r
    made = float(updates.sum(axis=1).mean()) * each + model.m * r
    return {"printed": printed, "corrected": corrected, "made": made}


def _cell(value: float, width: int) -> str:
    return f"{'–':>{width}}" if math.isnan(value) else f"{value:{width}.4g}"
