"""Do boosted trees gain if rows are weighted by λ, as the paper's learners are, when a tree grows?

``BoostedTrees`` grows a tree on what all other trees leave of the buffered rows, and all rows count
alike. Smooth boosting, the paper's way, gives less weight to the rows that the others already
predict well. Here a row whose remaining error is e counts

    λ = min(1, exp(c (e²/σ² − 1) / 2)),    σ² = s · the mean of e² over the rows of the step

which is the paper's λ for one learner before it, in units that do not depend on the target's scale:
1 where e² is above σ², and no less than exp(−c/2). c = 0 is plain boosting of residuals. The trees
stand alone, on raw rows with the last three answers where rows are ordered. Settings would be
chosen on the sets that ``auto`` was chosen on; the others show whether that holds elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import jax.numpy as jnp
import numpy as np
from jax import Array

import jboost as jb
from experiments.shared import markdown, sets
from experiments.shared.experiment import Experiment
from jboost.learners.forest import boosted

SETTINGS = ((0.0, 1.0), (1.0, 0.5), (1.0, 1.0), (1.0, 2.0), (4.0, 0.5), (4.0, 1.0))  # c and s


def label(c: float, s: float) -> str:
    return f"c = {c:g}, s = {s:g}" if c else "plain"


def weighted(sums: Array, c: float, s: float) -> Array:
    """The sums of each row, (n, 3), times its λ; they are w e, w · (what the old tree says), w."""
    w = sums[:, 2]
    squares = jnp.where(w > 0, sums[:, 0] / jnp.where(w > 0, w, 1), 0) ** 2
    target = s * jnp.sum(w * squares) / jnp.maximum(jnp.sum(w), 1e-30)
    ratio = squares / jnp.maximum(target, 1e-30)
    return sums * jnp.minimum(1, jnp.exp(c * (ratio - 1) / 2))[:, None]


def error(xs: np.ndarray, ds: np.ndarray, c: float, s: float) -> float:
    """The MSE of the trees, in units of half the target's range; the first row does not count."""
    plain = boosted.with_rows

    def with_rows(
        histogram: Array, node: Array, bins: Array, start: Array, count: Array, columns: Array,
        sums: Array,
    ) -> Array:  # fmt: skip
        sums = weighted(sums, c, s) if c else sums
        return plain(histogram, node, bins, start, count, columns, sums)

    @jb.model
    class Trees(jb.BoostedTrees):  # a class of its own: programs are kept by class
        pass

    with mock.patch.object(boosted, "with_rows", with_rows):
        prediction = np.asarray(jb.run(Trees(), xs, ds)[1].prediction)
    return float(np.square(prediction[1:] - ds[1:]).mean() / sets.half_range(ds) ** 2)


def work(name: str, rows: int) -> dict[str, Any]:
    """The errors of all settings on one set."""
    xs, ds = sets.load(name, rows)
    if name in sets.ORDERED:
        xs = sets.with_lags(xs, ds)
    xs, ds = xs[:rows].astype(np.float32), ds[:rows].astype(np.float32)
    return {label(c, s): error(xs, ds, c, s) for c, s in SETTINGS}


def table(record: markdown.Record) -> str:
    """The errors of each setting over those of plain boosting, by set, with geometric means."""
    found = record["results"]

    def mean(setting: str, names: Sequence[str]) -> str:
        ratios = [found[name][setting] / found[name]["plain"] for name in names if name in found]
        return f"{np.exp(np.mean(np.log(ratios))):.3f}"

    settings = [label(c, s) for c, s in SETTINGS if c]
    shown = [
        [name, markdown.number(row["plain"]), *(f"{row[s] / row['plain']:.3f}" for s in settings)]
        for name, row in found.items()
    ]
    for what, names in (("chosen on", sets.CHOSEN), ("held out", sets.HELD_OUT)):
        shown.append([f"geometric mean, {what}", "", *(mean(s, names) for s in settings)])
    line = markdown.run_line(record, "rows", "data")
    return f"{line}\n\n{markdown.table(['', 'plain, MSE', *settings], shown)}"


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    names = ("kin8nm",) if experiment.quick else sets.NAMES
    origin = sets.origin(names, quick=experiment.quick)
    rows = experiment.samples(8_192, 300)
    settings = {"rows": rows, "settings": SETTINGS, "data": origin}
    run = experiment.kept(lambda name: work(name, rows), settings)
    done = experiment.each(run, names, workers=1)  # the mended function is the module's
    experiment.write(settings, dict(zip(names, done, strict=True)))


if __name__ == "__main__":
    main()
