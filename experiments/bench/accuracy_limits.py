"""What must hold of the accuracy of auto, the figure of all sets, and the tables by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.bench import accuracy_peers as peers
from experiments.bench import accuracy_report as report
from experiments.bench import peer_models as models
from experiments.shared import pages, sets
from experiments.shared.experiment import read_json
from experiments.shared.figures import dress, style
from experiments.shared.markdown import Record, run_line, short, table
from jboost import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATIONARY = ("protein", "mv")  # sets whose error must keep falling
MARKERS = ("D", "s", "^", "v", "x")


class Limit(NamedTuple):
    """One thing that must hold."""

    what: str
    limit: float
    measured: float
    at_least: bool = False  # whether the limit is a least value; otherwise it is a largest one
    where: str = ""  # the sets that are worst, or on which it fails

    @property
    def holds(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def limits(results: Record, record: Record) -> Iterator[Limit]:
    """Everything that must hold of the medium size, with what was measured."""
    river, gbm, last = (
        report.pairs(results, record, column)
        for column in ("best of river", "LightGBM", "last value")
    )
    mean = report.geometric_mean
    yield Limit("error over the best of river, geometric mean", 0.5, mean(river))
    yield Limit("error over LightGBM refitted, geometric mean", 0.75, mean(gbm))
    worse = report.behind(gbm)
    yield Limit("sets with an error below LightGBM's", 14, len(gbm) - len(worse), True, _at(worse))
    found = [
        p for c in report.ONLINE for p in report.behind(report.pairs(results, record, c), 1.02)
    ]
    level = len(results["sets"]) - len({pair.name for pair in found})
    yield Limit("sets within 2 % of every online peer, or better", 17, level, True, _at(found))
    ordered = [pair for pair in last if pair.name in sets.ORDERED]
    worst = max(ordered, key=lambda pair: pair.ratio)
    yield Limit(
        "largest error over the last value's, ordered sets", 1, worst.ratio, where=worst.name
    )
    spread = {name: report.seed_ratio(results, name) for name in results["sets"]}
    name = max(spread, key=lambda name: spread[name])
    yield Limit("largest error of the worst seed over the best", 1.15, spread[name], where=name)
    yield from _times(results, record)
    yield from _windows(results)


def _times(results: Record, record: Record) -> Iterator[Limit]:
    for model in models.BOOSTING:
        times = report.peer_times(record, model)
        ratios = [results["sets"][name]["medium"]["us"] / us for name, us in times.items()]
        if ratios:
            what = f"time a sample over that of {model}, median of the sets"
            yield Limit(what, 1 / 3, float(np.median(ratios)))
    for r, limit in (("8", 8), ("54", 12)):
        if r in results["first"]:
            first = results["first"][r]
            what = f"CPU time of the first result over that of bnm_wu, r = {r}"
            yield Limit(what, limit, first["auto"] / first["bnm_wu"])


def _windows(results: Record) -> Iterator[Limit]:
    over = {}
    for name in report.WATCHED:
        block = results["sets"][name]
        pairs = zip(block["medium"]["tenths"], block["last value"]["tenths"], strict=True)
        over[name] = max(auto / last for auto, last in pairs)
    name = max(over, key=lambda name: over[name])
    what = "largest error over the last value's in a tenth of all rows"
    yield Limit(what, 1, over[name], where=name)
    for name in STATIONARY:
        tenths = results["sets"][name]["medium"]["tenths"]
        what = f"{name}: mean error of the last three tenths over that of the three before"
        yield Limit(what, 1, sum(tenths[-3:]) / sum(tenths[-6:-3]))


def _at(pairs: list[report.Pair]) -> str:
    """The sets on which peers are better, with both errors."""
    return "; ".join(
        f"{pair.name}: {pair.which} {short(pair.peer)}, auto {short(pair.auto)}" for pair in pairs
    )


def shown(results: Record, record: Record) -> str:
    """A table of the limits; empty where there is nothing to compare with."""
    if not record["sets"]:
        return table(["", "limit", "measured", "holds", "where"], [])
    rows = [
        [row.what, f"{'≥' if row.at_least else '≤'} {row.limit:.3g}", short(row.measured),
         "yes" if row.holds else "**no**", row.where]
        for row in limits(results, record)
    ]  # fmt: skip
    text = table(["", "limit", "measured", "holds", "where"], rows)
    return "\n\n".join([text, *report.unfinished(record)])


def figure(results: Record, record: Record) -> Figure:
    """The errors of the peers over that of auto, set by set; a peer left of the line wins."""
    names = [name for name in sets.NAMES if name in results["sets"]]
    height = {name: -place for place, name in enumerate(names)}
    fig, axes = plots.grid(1, 1, width=8.0, height=1.4 + 0.27 * len(names))
    ax = axes[0, 0]
    for k, column in enumerate(report.LIBRARIES):
        found = report.pairs(results, record, column)
        ratios, places = [1 / pair.ratio for pair in found], [height[pair.name] for pair in found]
        look = style(k + 1) | {"linestyle": "", "marker": MARKERS[k]}
        ax.plot(ratios, places, label=column, **look)
    for name in names:
        seeds = np.asarray(results["sets"][name]["seeds"]["mse"]) / report.median(results, name)
        ax.plot([seeds.min(), seeds.max()], [height[name]] * 2, color="black", linewidth=3)
    ax.axvline(1, color="black", linewidth=0.8, label="auto (bar: its seeds)")
    labels = [f"{name} (ordered)" if name in sets.ORDERED else name for name in names]
    ax.set_yticks([height[name] for name in names], labels)
    ax.set(xscale="log")
    what = "mean squared error over that of auto: left of the line a peer is better"
    dress(ax, f"First {peers.ROWS:,} rows of {len(names)} sets", what, "", loc="lower right")
    return fig


def redraw() -> None:
    """Make the figure of record and the tables of the pages from the kept results alone."""
    results, record = pages.load("accuracy")["results"], read_json(peers.FILE)
    plots.save(figure(results, record), peers.FILE.with_name("accuracy.png"), dpi=110)
    pages.fill()


def blocks(accuracy: Record, record: Record) -> dict[str, str]:
    """The marked tables by name; the errors of a quick run are not compared with the peers'."""
    results = accuracy["results"]
    if accuracy["quick"]:
        record = {"sets": {}}
    line = run_line(accuracy, "rows", "seeds", "data")
    return {
        "accuracy": report.summary(results, record),
        "accuracy sets": f"{line}\n\n{report.each_set(results, record)}",
        "accuracy limits": shown(results, record),
        "accuracy sizes": report.sizes(results, record),
        "accuracy tenths": report.tenths(results),
        "accuracy regret": report.regret(results),
        "accuracy peers": report.every_peer(record),
    }
