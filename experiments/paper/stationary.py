"""The paper's stationary experiment: d = x₁ + x₂ + 1 + ν, 100 trials, every reading and combiner.

The paper gives neither the length, nor the covariance, nor the ridge, nor the combiner's step. Here
T = 20,000, the correlation is 0.5 and v = 0.01, and several combiners and steps are run.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

import jboost as jb
from experiments.paper.comparison import compare, figure, relative_figure
from experiments.paper.protocol import STATIONARY
from experiments.shared.experiment import Experiment


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=True)
    trials, T = experiment.size(100, 8), experiment.samples(20_000, 2_000)
    keys = jax.random.split(jax.random.key(0), trials)
    xs, ds = jax.vmap(lambda key: jb.streams.stationary(key, T))(keys)
    results = compare(experiment, xs, ds, STATIONARY)
    results["outside"] = float(((ds < -1) | (ds > 1)).mean())
    settings = {**STATIONARY.record(), "T": T, "trials": trials, "correlation": 0.5, "seed": 0}
    experiment.write(settings, results)
    experiment.save(figure(results, "Stationary"))
    experiment.save(relative_figure(results, "Stationary"), f"{experiment.name}_relative")


if __name__ == "__main__":
    main()
