"""auto against its peers: the tables of the pages, from ``accuracy.json`` and ``peers.json``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.bench import accuracy_peers as peers
from experiments.bench import peer_models as models
from experiments.shared import sets
from experiments.shared.markdown import Record, marked, number, short, table

# The name of a column, and the package whose regressors it shows.
LIBRARIES = {
    "best of river": "river",
    "best of CapyMOA": "capymoa",
    "LightGBM": "lightgbm",
    "last value": "numpy",
}
ONLINE = ("best of river", "best of CapyMOA", "last value")  # these never fit again
NEAR = 1.02  # at most this ratio to a peer counts as level
WATCHED = ("protein", "mv", "metro_traffic", "vic_electricity")  # their tenths are shown


class Pair(NamedTuple):
    """auto and the best regressor of a library on one set."""

    name: str
    which: str  # the regressor
    auto: float  # the error of auto, the median over its seeds
    peer: float  # the error of the regressor

    @property
    def ratio(self) -> float:
        return self.auto / self.peer


def median(results: Record, name: str, error: str = "mse") -> float:
    """The median error of auto over its seeds."""
    return float(np.median(results["sets"][name]["seeds"][error]))


def seed_ratio(results: Record, name: str) -> float:
    """The error with the worst seed over that with the best."""
    errors = results["sets"][name]["seeds"]["mse"]
    return max(errors) / min(errors)


def pairs(
    results: Record, record: Record, column: str, names: Iterable[str] = sets.NAMES,
    error: str = "mse",
) -> list[Pair]:  # fmt: skip
    """auto and the best of a library on every set for which the record has one."""
    found = []
    for name in names:
        which, theirs = peers.best(record, name, LIBRARIES[column], error)
        if which:
            found.append(Pair(name, which, median(results, name, error), theirs))
    return found


def geometric_mean(found: Sequence[Pair]) -> float:
    """The geometric mean of auto's errors over those of a peer; NaN without any."""
    return math.exp(np.mean([math.log(pair.ratio) for pair in found])) if found else math.nan


def behind(found: Sequence[Pair], limit: float = 1.0) -> list[Pair]:
    """The sets on which auto's error is more than ``limit`` times that of the peer."""
    return [pair for pair in found if pair.ratio > limit]


def summary(results: Record, record: Record) -> str:
    """A row for each library: means of the ratios, and the sets on which it is better."""
    rows = []
    for column in LIBRARIES:
        found = pairs(results, record, column)
        means = [
            geometric_mean(pairs(results, record, column, names, error))
            for names, error in (
                (sets.NAMES, "mse"), (sets.CHOSEN, "mse"), (sets.HELD_OUT, "mse"),
                (sets.NAMES, "late"),
            )
        ]  # fmt: skip
        worse = behind(found)
        better = ", ".join(f"{pair.name} {pair.ratio:.2f}" for pair in worse) or "none"
        wins = f"{len(found) - len(worse)} of {len(found)}"
        if found:
            rows.append([column, *(f"{mean:.2f}" for mean in means), wins, better])
    head = ["", "all sets", "chosen on", "held out", "second half", "auto is better on"]
    text = table([*head, "the peer is better on (ratio)"], rows)
    return "\n\n".join([text, *unfinished(record)])


def unfinished(record: Record) -> list[str]:
    """A sentence where the record of the peers is not complete, so that it looks no better."""
    cells = [*peers.cells(sets.NAMES, models.NAMES)]
    compared = [cell for cell in cells if cell.inputs == peers.comparable(cell.name)]
    found = sum(
        cell.model in record["sets"].get(cell.name, {}).get(cell.inputs, {}) for cell in compared
    )
    missing = len(compared) - found
    if not missing:
        return []
    note = "the best of a library may be better than shown"
    return [f"Of {len(compared)} pairs of a peer and a set {missing} have not run yet: {note}."]


def each_set(results: Record, record: Record) -> str:
    """A row for each set: auto, its spread over seeds, and the best of every library."""
    best = {column: {p.name: p for p in pairs(results, record, column)} for column in LIBRARIES}
    rows = []
    for name in sets.NAMES:
        if name not in results["sets"]:
            continue
        block, auto = results["sets"][name], median(results, name)
        role = "chosen on" if name in sets.CHOSEN else "held out"
        cells = [f"{name}, ordered" if block["ordered"] else name, role]
        least = min((b[name].peer for b in best.values() if name in b), default=math.inf)
        cells += [marked(short(auto), auto / least), f"{seed_ratio(results, name):.2f}"]
        for column, found in best.items():
            if name not in found:
                cells.append("–")
                continue
            pair = found[name]
            text = marked(short(pair.peer), pair.peer / auto)
            alone = column in ("LightGBM", "last value")
            cells.append(text if alone else f"{text} {_brief(pair.which)}")
        rows.append([*cells, short(median(results, name, "late")), short(_late(record, name))])
    head = ["", "role", "auto", "worst / best seed", *LIBRARIES, "auto, second half"]
    return table([*head, "LightGBM, second half"], rows)


def _late(record: Record, name: str) -> float | None:
    which, error = peers.best(record, name, "lightgbm", "late")
    return error if which else None


def _brief(model: str) -> str:
    """The name of a regressor without its library and its kind."""
    bare = model.removesuffix(models.SCALED)
    brief = bare.removeprefix("CapyMOA ").removesuffix("Regressor")
    return f"{brief}, scaled" if bare != model else brief


def sizes(results: Record, record: Record) -> str:
    """A row for each size: its errors over the medium size, its time and its memory."""
    blocks = results["sets"]
    rows = []
    for size, held in results["bytes"].items():
        whole = [block[size]["mse"] / block["medium"]["mse"] for block in blocks.values()]
        every = [
            blocks[name][size]["all rows"]["mse"] / blocks[name]["medium"]["all rows"]["mse"]
            for name in WATCHED
            if name in blocks
        ]
        spent = sorted(block[size]["us"] for block in blocks.values())
        kilobytes = " and ".join(f"{count / 1024:,.0f}" for count in held.values())
        times = f"{np.median(spent):.0f} ({spent[0]:.0f} to {spent[-1]:.0f})"
        rows.append([size, _mean(whole), _mean(every), times, kilobytes])
    for model in models.BOOSTING:
        gbm = [*peer_times(record, model).values()]
        if gbm:
            times = f"{np.median(gbm):.0f} ({min(gbm):.0f} to {max(gbm):.0f})"
            rows.append([model, "–", "–", times, "–"])
    widths = " and ".join(next(iter(results["bytes"].values())))
    whole_sets = f"all rows of {', '.join(WATCHED)}"
    head = ["", "error over medium, 8,192 rows", whole_sets, "µs a sample: median (range)"]
    return table([*head, f"state with {widths} columns, kB"], rows)


def peer_times(record: Record, model: str) -> dict[str, float]:
    """Microseconds a sample of a peer, by set."""
    cells = {
        name: by_inputs.get(peers.comparable(name), {}).get(model)
        for name, by_inputs in record["sets"].items()
    }
    return {name: cell["us"] for name, cell in cells.items() if cell and cell["us"] is not None}


def _mean(ratios: Sequence[float]) -> str:
    return f"{math.exp(np.mean(np.log(ratios))):.3f}"


def tenths(results: Record, names: Sequence[str] = WATCHED) -> str:
    """The errors of each tenth of all rows, and of the last value on the same rows."""
    rows = []
    for name in names:
        if name not in results["sets"]:
            continue
        block = results["sets"][name]
        auto, last = block["medium"]["tenths"], block["last value"]["tenths"]
        cells = [marked(short(a), a / b) for a, b in zip(auto, last, strict=True)]
        rows.append([f"{name}, {block['T']:,} rows", *cells])
        rows.append([f"{name}, last value", *map(short, last)])
    return table(["", *(str(k) for k in range(1, 11))], rows)


def regret(results: Record) -> str:
    """auto beside its best expert and the best fixed mix of its experts, in hindsight."""
    rows = []
    for name, block in results["sets"].items():
        auto, best, mix = median(results, name), block["best expert"], block["best fixed mix"]
        ratios = [f"{auto / best['mse']:.2f}", f"{auto / mix:.2f}"]
        rows.append([name, short(auto), short(best["mse"]), best["name"], short(mix), *ratios])
    head = ["", "auto", "best expert", "its name", "best fixed mix", "auto / expert", "auto / mix"]
    return table(head, rows)


def every_peer(record: Record) -> str:
    """A row for each regressor: sets, how near it is to the best of all peers, and its time."""
    least = {
        name: min(peers.best(record, name, library)[1] for library in LIBRARIES.values())
        for name in record["sets"]
    }
    rows = []
    for model in models.NAMES:
        cells = {
            name: cell
            for name, by_inputs in record["sets"].items()
            if (cell := by_inputs.get(peers.comparable(name), {}).get(model)) is not None
        }
        sound = {name: cell for name, cell in cells.items() if cell["mse"] is not None}
        if not sound:
            continue
        over = _mean([cell["mse"] / least[name] for name, cell in sound.items()])
        first = sum(cell["mse"] == least[name] for name, cell in sound.items())
        lags = _lag_gain(record, model)
        failed = ", ".join(name for name in cells if name not in sound) or "–"
        absent = ", ".join(name for name in sets.NAMES if name not in cells) or "–"
        spent = float(np.median([cell["us"] for cell in sound.values()]))
        rows.append([model, over, str(first), lags, f"{spent:,.0f}", failed, absent])
    head = ["", "error over the best peer's", "best on", "lags / without", "µs", "broke down on"]
    return table([*head, "not run on"], rows)


def _lag_gain(record: Record, model: str) -> str:
    """The errors with lags over those without, on ordered sets, as a geometric mean."""
    ratios = []
    for by_inputs in record["sets"].values():
        both = [by_inputs.get(inputs, {}).get(model) for inputs in (peers.LAGS, peers.PLAIN)]
        errors = [None if cell is None else cell["mse"] for cell in both]
        if errors[0] is not None and errors[1] is not None:
            ratios.append(errors[0] / errors[1])
    return number(float(np.exp(np.mean(np.log(ratios)))), 2) if ratios else "–"
