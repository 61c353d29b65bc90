"""Do quantiles and intervals hold, and how do losses compare with river's in the same run?

Each set is learned row by row, the inputs standardised as they come. "conformal" is
``Intervals`` around a Newton learner; "quantiles" are two linear learners under the pinball loss by
reweighted least squares (``GaussNewton`` of a linear function), and by SGD; "boosted" is boosted
SGD; river has ``LinearRegression`` under ``Quantile`` by SGD of the same steps behind its scaler.
Coverage and mean width are over all rows after the first tenth, and the pinball loss is the sum of
that of both bounds; width and loss are over the target's deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost as jb
from experiments.shared import data
from experiments.shared.experiment import Experiment
from jboost.learners.networks import Function

KEY, COVERAGE, STEP = jax.random.key(0), 0.9, 0.01
SETS = ("kin8nm", "puma8nh", "compactiv", "california")


def _linear(params: Any, x: Any) -> Any:
    return params @ x


def _zeros(key: Any, r: int) -> Any:
    return jnp.zeros(r)


LINEAR = Function(_linear, _zeros)


def behind_scales(learner: jb.Learner) -> jb.Learner:
    """The learner in units of inputs and target, with a constant."""
    return jb.pipeline(jb.Scale(), jb.Bias(), jb.ScaleTarget(learner))


def reweighted(tau: float) -> jb.Learner:
    newton = jb.Newton(0.9995, 1.0)
    return behind_scales(jb.GaussNewton(LINEAR, newton, loss=jb.losses.pinball(tau)))


def descended(tau: float) -> jb.Learner:
    return behind_scales(jb.SGD(STEP, loss=jb.losses.pinball(tau)))


def boosted(tau: float) -> jb.Learner:
    loss = jb.losses.pinball(tau)
    return behind_scales(jb.boost(jb.SGD(STEP, loss=loss), 10, target_mse=0.3, loss=loss))


MODELS: dict[str, Callable[[], jb.Learner]] = {
    "conformal": lambda: jb.Intervals(behind_scales(jb.Newton(0.9995, 1.0)), COVERAGE),
    "quantiles, reweighted": lambda: jb.intervals.from_quantiles(reweighted, COVERAGE),
    "quantiles, SGD": lambda: jb.intervals.from_quantiles(descended, COVERAGE),
    "quantiles, boosted SGD": lambda: jb.intervals.from_quantiles(boosted, COVERAGE),
}


def of_river(xs: np.ndarray, ds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two bounds by river, whose target is scaled as it is known in hindsight."""
    from river import linear_model, optim, preprocessing

    mean, deviation = float(ds.mean()), float(ds.std())
    bounds = []
    for tau in ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2):
        model = preprocessing.StandardScaler() | linear_model.LinearRegression(
            optimizer=optim.SGD(STEP), loss=optim.losses.Quantile(tau), intercept_lr=STEP
        )
        found = []
        for x, d in zip(xs.tolist(), ds.tolist(), strict=True):
            row = dict(enumerate(x))
            found.append(model.predict_one(row) * deviation + mean)
            model.learn_one(row, (d - mean) / deviation)
        bounds.append(np.array(found))
    return bounds[0], bounds[1]


def judged(low: Any, high: Any, ds: np.ndarray) -> dict[str, float]:
    """Coverage, width and pinball loss after the first tenth."""
    rows = slice(len(ds) // 10, None)
    low, high = (np.asarray(bound, np.float64)[rows] for bound in (low, high))
    d, unit, alpha = ds[rows].astype(np.float64), float(ds.std()), 1 - COVERAGE
    pinball = 0.0
    for bound, tau in ((low, alpha / 2), (high, 1 - alpha / 2)):
        e = d - bound
        pinball += float(np.mean(np.maximum(tau * e, (tau - 1) * e)))
    inside = float(np.mean((low <= d) & (d <= high)))
    width = float(np.mean(high - low))
    return {"inside": inside, "width": width / unit, "pinball": pinball / unit}


def compare(name: str, T: int) -> dict[str, Any]:
    xs, ds = (np.asarray(a[:T], np.float32) for a in data.raw(name, T))
    found = {}
    for label, make in MODELS.items():
        _, trace = jb.run(make(), xs, ds, KEY, observe=jb.intervals.band)
        low, high = trace.observed
        found[label] = judged(low, high, ds)
    low, high = of_river(xs, ds)
    found["river, quantiles"] = judged(low, high, ds)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    T = experiment.samples(8000, 500)
    results = {}
    for name in SETS[: experiment.size(4, 1)]:
        results[name] = compare(name, T)
        for label, row in results[name].items():
            shown = f"inside {row['inside']:.1%} width {row['width']:.3f} loss {row['pinball']:.4f}"
            print(f"{name:12} {label:24} {shown}", flush=True)
    origin = data.origin(SETS, quick=experiment.quick)
    settings = {"T": T, "coverage": COVERAGE, "step": STEP, "data": origin}
    experiment.write(settings, results)


if __name__ == "__main__":
    main()
