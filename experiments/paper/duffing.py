"""The paper's chaotic experiment: the Duffing map, under every reading and combiner.

The paper gives neither the length, nor the ridge, nor the combiner's step. Here T = 20,000 and
v = 0.01, and several combiners and steps are run. Random updates are means over five keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import jboost as jb
from experiments.paper.comparison import compare, figure, relative_figure
from experiments.paper.protocol import DUFFING, repeated
from experiments.shared.experiment import Experiment


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=True)
    keys, T = experiment.size(5, 1), experiment.samples(20_000, 4_000)
    xs, ds = repeated(*jb.streams.duffing(T), keys)
    results = compare(experiment, xs, ds, DUFFING, keys=keys)
    results["outside"] = float(((ds[0] < -1) | (ds[0] > 1)).mean())
    experiment.write({**DUFFING.record(), "T": T, "keys": keys, "seed": 1}, results)
    experiment.save(figure(results, "Duffing"))
    experiment.save(relative_figure(results, "Duffing"), f"{experiment.name}_relative")


if __name__ == "__main__":
    main()
