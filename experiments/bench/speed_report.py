"""The measurements of ``speed.py`` as tables, as requirements, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jboost import plots

LOOKS = {  # marker and filling: told apart without colour
    "C": ("s", "none"),
    "jboost": ("o", "black"),
    "P form": ("^", "0.6"),
    "peer": ("x", "black"),
}


class Row(NamedTuple):
    """One timing. ``compile`` is the first call less a later one, in seconds."""

    name: str
    r: int
    how: str
    combiner: str
    steps: int
    microseconds: float
    compile: float
    mse: float
    finite: bool


class Results(NamedTuple):
    """All measurements of one run."""

    rows: list[Row]
    notes: list[str]
    sparing: dict[str, float]
    same_algorithm: dict[str, float]
    compiled_again: dict[str, int]
    trials: dict[str, Any]
    growth: dict[str, Any]
    memory: dict[str, Any]
    imports: dict[str, float]

    def time(self, name: str, r: int, how: str = "jboost", combiner: str = "NSGD") -> float:
        """Microseconds a step; nan where it was not measured."""
        for row in self.rows:
            if (row.name, row.r, row.how, row.combiner) == (name, r, how, combiner):
                return row.microseconds
        return float("nan")

    @property
    def widths(self) -> list[int]:
        """The numbers of columns that were measured."""
        return sorted({row.r for row in self.rows})


class Requirement(NamedTuple):
    """A measurement with its limit; an ``aim`` that is missed is reported but does not fail."""

    what: str
    sign: str  # <= or >=
    wanted: float
    measured: float
    aim: bool = False

    @property
    def verdict(self) -> str:
        """Whether the measurement meets its limit, in a word or two."""
        if np.isnan(self.measured):
            return "not measured"
        met = self.measured <= self.wanted if self.sign == "<=" else self.measured >= self.wanted
        return "ok" if met else "aim missed" if self.aim else "NOT MET"


def requirements(found: Results) -> Iterator[Requirement]:
    """What must hold, mostly ratios within one run; nan for what a quick run leaves out."""
    time = found.time
    ratio = time("BSGD-WU", 3) / time("BSGD-WU", 3, "C")
    yield Requirement("BSGD-WU / C, r = 3", "<=", 1.35, ratio)
    for how, wanted in (("jboost", (0.8, 2.0, 1.5)), ("P form", (0.6, 1.7, 1.1))):
        for r, limit in zip((3, 21, 90), wanted, strict=True):
            form = "safe default" if how == "jboost" else "P form"
            ratio = time("BNM-WU", r, how) / time("BNM-WU", r, "C")
            yield Requirement(f"BNM-WU ({form}) / C, r = {r}", "<=", limit, ratio)
    for family in ("BSGD", "BNM"):
        for r, limit in ((3, 1.5), (21, 1.25), (90, 1.25)):
            ratio = time(f"{family}-DR", r) / time(f"{family}-WU", r)
            yield Requirement(f"{family}-DR / {family}-WU, r = {r}", "<=", limit, ratio)
    lam = found.sparing.get("mean_lambda", float("nan"))
    ratio = time("BNM-WU", 90) / time("BNM-RU", 90)
    yield Requirement(f"BNM-WU / BNM-RU, r = 90, mean λ {lam:.3f}", ">=", 5, ratio)
    for r in (3, 21, 90):
        ratio = time("BSGD-RU", r) / time("BSGD-WU", r)
        yield Requirement(f"BSGD-RU / BSGD-WU, r = {r}", "<=", 1.5, ratio)
    count = found.trials["trials"]
    for family in ("BSGD", "BNM"):
        ways = dict(found.trials[family])
        c = ways.pop("C", float("nan"))
        way = min(ways, key=ways.__getitem__)
        ratio = ways[way] / c
        yield Requirement(f"{count} trials, {family}-WU ({way}) / C, r = 3", "<=", 0.8, ratio)
    bagged = next((row.name for row in found.rows if "bagged" in row.name), "river")
    for r, limit in ((3, 500), (90, 100)):
        ratio = time(bagged, r, "peer", "") / time("BSGD-WU", r)
        yield Requirement(f"{bagged} / BSGD-WU, r = {r}", ">=", limit, ratio)
    steps = list(found.growth["microseconds"].values())
    longest = int(list(found.growth["microseconds"])[-1])
    ratio = max(steps) / min(steps) if len(steps) > 1 else float("nan")
    yield Requirement(f"most / least µs a step, T = 1e4 to {longest:.0e}", "<=", 1.3, ratio)
    added = found.memory["added_mb"]
    yield Requirement(f"MB added by {found.memory['steps']:.0e} steps streamed", "<=", 200, added)
    slowest = max((row for row in found.rows if row.how in ("jboost", "P form")), key=_compile)
    yield Requirement(
        f"longest compile, s ({slowest.name}, r = {slowest.r}, {slowest.combiner})", "<=", 3,
        slowest.compile, aim=True,
    )  # fmt: skip
    ratio = found.imports["jboost"] / found.imports["jax"]
    yield Requirement("import jboost / import jax", "<=", 1.2, ratio, aim=True)
    programs = sum(found.compiled_again.values())
    yield Requirement("programs compiled by second runs", "<=", 0, programs)
    broken = sum(not row.finite for row in found.rows if row.how != "peer")
    yield Requirement("rows with an output that is not finite", "<=", 0, broken)


def _compile(row: Row) -> float:
    return row.compile


def show(found: Results) -> None:
    """Print the tables and the requirements."""
    print("\nµs per step, m = 20, float32, one stream; × is the time divided by C's")
    head = f"{'r':>3}  {'model':<8} {'combiner':<8} {'C':>8} {'jboost':>9} {'×':>6}"
    print(f"{head} {'P form':>9} {'×':>6} {'compile s':>10} {'MSE':>8}")
    for row in found.rows:
        if row.how != "jboost":
            continue
        c = found.time(row.name, row.r, "C", row.combiner)
        fast = found.time(row.name, row.r, "P form", row.combiner)
        print(
            f"{row.r:>3}  {row.name:<8} {row.combiner:<8} {_number(c):>8} "
            f"{_number(row.microseconds):>9} {_number(row.microseconds / c):>6} "
            f"{_number(fast):>9} {_number(fast / c):>6} {row.compile:>10.2f} {row.mse:>8.4f}"
        )
    if any(row.how == "peer" for row in found.rows):
        print("\npeers, µs per sample; × is the time divided by BSGD-WU's")
        for row in found.rows:
            if row.how == "peer":
                ratio = row.microseconds / found.time("BSGD-WU", row.r)
                print(f"{row.r:>3}  {row.name:<26} {_number(row.microseconds):>9} {ratio:>8,.0f}")
    trials = found.trials
    print(f"\n{trials['trials']} trials of {trials['T']:,} steps, r = 3, µs per trial and step")
    for way in trials["BSGD"]:
        times = "  ".join(f"{f}-WU {_number(trials[f][way]):>7}" for f in ("BSGD", "BNM"))
        print(f"     {way:<26} {times}")
    print(f"\nBSGD-WU, r = 3: µs per step by T (one call by itself: "
          f"{found.growth['call_microseconds']:.0f} µs)")  # fmt: skip
    for T, spent in found.growth["microseconds"].items():
        print(f"     {int(T):>12,} {_number(spent):>9}")
    later = found.memory["added_after_first_block_mb"]
    print(f"\nmemory added by the stream after its first block: {later:.0f} MB")
    print("import, s: " + ", ".join(f"{k} {v:.2f}" for k, v in found.imports.items()))
    if found.same_algorithm:
        worst = max(found.same_algorithm.values())
        print(f"C and jboost agree in all {len(found.same_algorithm)} rows, at worst {worst:.1e}")
    for note in found.notes:
        print(f"note: {note}")
    print("\nwhat must hold")
    for need in requirements(found):
        wanted, got = f"wanted {need.sign} {need.wanted:g},", _number(need.measured)
        print(f"  {need.what:<58} {wanted:<16} measured {got:>7}, {need.verdict}")
    print()


def record(found: Results) -> dict[str, Any]:
    """The measurements for JSON."""
    kept = found._asdict()
    kept["rows"] = [row._asdict() for row in found.rows]
    kept["requirements"] = [
        {**need._asdict(), "verdict": need.verdict} for need in requirements(found)
    ]
    return kept


def figure(found: Results) -> Any:
    """Dots on a logarithmic axis, one panel per width, one line per model or peer."""
    names = list(dict.fromkeys(row.name for row in found.rows))
    place = {name: len(names) - k for k, name in enumerate(names)}
    drawing, axes = plots.grid(1, len(found.widths), width=3.6, height=0.28 * len(names) + 1.3)
    for panel, (ax, r) in enumerate(zip(axes[0], found.widths, strict=True)):
        for how, (marker, filling) in LOOKS.items():
            mine = [
                row for row in found.rows
                if (row.r, row.how) == (r, how) and row.combiner in ("NSGD", "")
            ]  # fmt: skip
            if mine:
                look = {} if marker == "x" else {"facecolors": filling, "edgecolors": "black"}
                if marker == "x":
                    look = {"color": "black"}
                times = [row.microseconds for row in mine]
                heights = [place[row.name] for row in mine]
                label = {"jboost": "jboost, safe default", "P form": "jboost, P form"}.get(how, how)
                ax.scatter(times, heights, s=34, marker=marker, label=label, zorder=3, **look)
        ax.set_xscale("log")
        ax.set_title(f"r = {r}", fontsize="medium")
        ax.set_xlabel("µs per sample")
        ax.set_yticks(list(place.values()), list(place) if panel == 0 else [""] * len(place))
        ax.grid(color="0.9", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0][0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return drawing


def _number(value: float) -> str:
    """Three digits, or a dash."""
    if np.isnan(value):
        return "–"
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
