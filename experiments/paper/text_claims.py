"""What the paper says in its text and shows in no figure: mixtures, K, large c, two readings.

* §4: boosting improves a mixture of different learners (c = 0 against c > 0, same learners).
* §5.2: a larger K does not always help data reuse.
* §8.3: at a very large c the weights are close to 0 or 1.
* §3: in the scalar case the forward algorithm's predictions are always bounded.
* A commented-out remark of Algorithm 2 calls e "the error after the update". Here the loss l takes
  that error, in a NumPy transcription of the printed steps, which is first checked against the
  library's literal models with the error before the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import jboost as jb
from experiments.paper.protocol import DUFFING, Settings, all_combined, boosted, chains, combiners
from experiments.shared.errors import cell
from experiments.shared.experiment import Experiment
from experiments.shared.figures import dress, style
from jboost import plots

Floats = NDArray[np.float64]
DEPENDENCE = (0.0, 0.5, 1.0, 2.0)
REUSE = (1, 2, 3, 5, 8, 12, 20, 40)
STRENGTHS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
SHOWN = ("uniform", "RLS", "forward RLS")


def mixture() -> list[Any]:
    """Eight different learners: gradient descent at four steps, Newton's method at four β."""
    return [
        *(jb.SGD(step, guard=False) for step in (0.03, 0.1, 0.2, 0.3)),
        *(jb.Newton(beta, ridge=0.01, max_variance=None) for beta in (0.8, 0.9, 0.99, 0.999)),
    ]


def mixtures(xs: Any, ds: Any, target: float) -> dict[str, Any]:
    """The same eight learners, independent (c = 0) and boosted, by combiner."""
    rows: dict[str, Any] = {}
    for c in DEPENDENCE:
        model = jb.boost(
            mixture(), target_mse=target, dependence=c, combiner=jb.Uniform(), literal=True
        )
        chain = chains(model, xs[None], ds[None], jax.random.split(jax.random.key(0), 1))
        done = all_combined(chain.y, ds[None], combiners(literal=True))
        rows[f"{c:g}"] = {name: cell(done[name], ds[None]) for name in SHOWN}
    return rows


def reuse(name: str, xs: Any, ds: Any) -> dict[str, Any]:
    """Data reuse at several K. BSGD-DR has steps of μ/K, as the paper's."""
    rows: dict[str, Any] = {}
    keys = jax.random.split(jax.random.key(0), 1)
    for K in REUSE:
        model = boosted(name, replace(DUFFING, max_reuse=K), literal=True)
        chain = chains(model, xs[None], ds[None], keys)
        done = all_combined(chain.y, ds[None], combiners(literal=True))
        rows[str(K)] = {
            "updates": float(chain.updates.sum()),
            "mse": {c: cell(done[c], ds[None]) for c in SHOWN},
        }
    return rows


def weights_at(name: str, xs: Any, ds: Any) -> dict[str, float]:
    """The share of λ^(2..m) within 0.01 of 0 or 1, for several c."""
    shares = {}
    for c in STRENGTHS:
        model = boosted(name, replace(DUFFING, dependence=c), literal=True)
        lam = np.asarray(jb.run(model, xs, ds, jax.random.key(1), observe=_lam)[1].observed)[:, 1:]
        shares[f"{c:g}"] = float(((lam < 0.01) | (lam > 0.99)).mean())
    return shares


def _lam(state: Any, info: Any) -> Any:
    """Observe the weights of all learners."""
    del state
    return info.lam


def forward_bound(lengths: Sequence[int]) -> list[dict[str, float]]:
    """The largest scalar forward prediction where all |d| are at most 1, beside ½‖d‖₂.

    With x = 1, d = 1 for n steps and then x = √(n + v) the prediction is n/(2√(n + v)).
    """
    rows = []
    for n in lengths:
        ridge = 1e-6
        model = jb.ForwardNewton(1.0, ridge=ridge, max_variance=None)
        xs = np.r_[np.ones(n), np.sqrt(n + ridge)][:, None]
        last = jb.run(model, xs, np.ones(n + 1))[1].prediction[-1]
        rows.append({"n": n, "prediction": float(last), "bound": float(np.sqrt(n) / 2)})
    return rows


def transcribed(xs: Floats, ds: Floats, s: Settings, *, newton: bool, after: bool) -> Floats:
    """Algorithm 2 with weighted updates, line by line, and the estimates (T, m) of its learners.

    With ``after`` the loss l takes the error of a learner after its update, otherwise before it.
    """
    target = float(s.target_nm if newton else s.target_sgd)
    m, r, beta = s.m, xs.shape[1], float(s.forgetting)
    w, P = np.zeros((m, r)), np.repeat(np.eye(r)[None] / s.ridge, m, axis=0)
    delta, Lam, estimates = np.zeros(m), np.zeros(m), np.empty((len(ds), m))
    for t, (x, d) in enumerate(zip(xs, ds, strict=True)):
        estimates[t] = y = w @ x
        l = 0.0
        for k in range(m):
            # 0⁰ = 1, 0⁺ = 0 and 0⁻ → 1.
            power = delta[k] ** l if delta[k] > 0 else float(l <= 0)
            lam = min(1.0, power)
            e = d - y[k]
            if newton:
                Px = P[k] @ x
                g = lam / (beta + lam * (x @ Px))
                w[k] += e * g * Px
                P[k] = (P[k] - g * np.outer(Px, Px)) / beta
            else:
                w[k] += s.step_size * lam * e * x
            clipped = d - min(max(y[k], -1.0), 1.0)
            if Lam[k] + lam > 0:
                delta[k] = (Lam[k] * delta[k] + lam * clipped**2 / 4) / (Lam[k] + lam)
            Lam[k] += lam
            l += target - ((d - w[k] @ x) if after else e) ** 2
    return estimates


def after_update(name: str, xs: Any, ds: Any) -> dict[str, Any]:
    """Both readings of "the error" of Algorithm 2, and how far ours is from the library."""
    newton = name.startswith("BNM")
    inputs, targets = np.asarray(xs, np.float64), np.asarray(ds, np.float64)
    keys = jax.random.split(jax.random.key(0), 1)
    library = chains(boosted(name, DUFFING, literal=True), xs[None], ds[None], keys).y
    before, late = (
        transcribed(inputs, targets, DUFFING, newton=newton, after=after) for after in (False, True)
    )
    rows: dict[str, Any] = {"largest_difference": np.abs(np.asarray(library)[0] - before).max()}
    for label, y in (("before", before), ("after", late)):
        done = all_combined(jnp.asarray(y)[None], ds[None], combiners(literal=True))
        rows[label] = {c: cell(done[c], ds[None]) for c in SHOWN}
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=True)
    T = experiment.samples(20_000, 1_000)
    xs, ds = jb.streams.duffing(T)
    parts: dict[str, Any] = {
        "mixture, Duffing": lambda: mixtures(xs, ds, 0.17),
        "forward": lambda: forward_bound((25, 100, 400, 1600)),
    }
    for k in range(experiment.size(3, 1)):
        pair = jb.streams.piecewise(jax.random.key(k), T)
        parts[f"mixture, piecewise {k}"] = lambda pair=pair: mixtures(pair[0], pair[1], 0.1)
    for name in ("BSGD-DR", "BNM-DR"):
        parts[f"K, {name}"] = lambda name=name: reuse(name, xs, ds)
    for name in ("BSGD-WU", "BNM-WU"):
        parts[f"c, {name}"] = lambda name=name: weights_at(name, xs, ds)
        parts[f"after, {name}"] = lambda name=name: after_update(name, xs, ds)
    results = dict(zip(parts, experiment.each(lambda name: parts[name](), parts), strict=True))
    experiment.write({**DUFFING.record(), "T": T, "reading": "literal"}, results)
    experiment.save(figure(results))


def figure(results: dict[str, Any]) -> Any:
    """The error against K, the share of weights near 0 or 1 against c, and mixtures against c."""
    fig, axes = plots.grid(1, 3, width=4.4, height=3.2)
    for i, name in enumerate(("BSGD-DR", "BNM-DR")):
        rows = results[f"K, {name}"]
        for j, combiner in enumerate(("uniform", "forward RLS")):
            errors = [row["mse"][combiner]["mean"] for row in rows.values()]
            look = style(2 * i + j, markers=True)
            axes[0, 0].plot([int(K) for K in rows], errors, label=f"{name}, {combiner}", **look)
    axes[0, 0].set_xscale("log")
    axes[0, 0].set_ylim(top=axes[0, 0].get_ylim()[1] * 1.1)
    dress(axes[0, 0], "Data reuse on Duffing", "most repeats, K", "MSE", handlelength=3)
    for i, name in enumerate(("BSGD-WU", "BNM-WU")):
        shares = results[f"c, {name}"]
        look = style(i, markers=True)
        axes[0, 1].plot([float(c) for c in shares], list(shares.values()), label=name, **look)
    axes[0, 1].set_xscale("log")
    axes[0, 1].set_ylim(0, 1.05)
    dress(axes[0, 1], "Weights within 0.01 of 0 or 1", "dependence, c", "share of λ")
    streams = [name for name in results if name.startswith("mixture")]
    for i, name in enumerate(streams):
        rows = results[name]
        base = rows["0"]["forward RLS"]["mean"]
        ratio = [row["forward RLS"]["mean"] / base for row in rows.values()]
        label = name.removeprefix("mixture, ")
        axes[0, 2].plot([float(c) for c in rows], ratio, label=label, **style(i, markers=True))
    title = "Eight different learners, forward RLS"
    dress(axes[0, 2], title, "dependence, c", "MSE over that at c = 0", handlelength=3)
    return fig


if __name__ == "__main__":
    main()
