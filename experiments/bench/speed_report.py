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


def loop_of(how: str) -> str:
    """How a row was timed, without the layout that a loop in C has."""
    return how.split(",")[0]


LIMITS = (  # model, form and, by the number of columns, how many times the time of C it may take
    ("BSGD-WU", "jboost", {3: 1.35}),
    ("BNM-WU", "jboost", {3: 0.8, 21: 2.0, 90: 1.5}),
    ("BNM-WU", "P form", {3: 0.6, 21: 1.7, 90: 1.1}),
)


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
    first: dict[str, dict[str, float]]
    command: dict[str, float]  # CPU seconds of ``jboost run``, cold and warm
    singles: dict[str, dict[str, float]]  # of `speed_parts.single_calls`
    storages: dict[str, dict[str, float]]  # of `speed_parts.storages`, by the number of columns

    def time(self, name: str, r: int, how: str = "jboost", combiner: str = "NSGD") -> float:
        """Microseconds a step, of C those of the faster layout; nan where it was not measured."""
        times = [
            row.microseconds
            for row in self.rows
            if (row.name, row.r, row.combiner) == (name, r, combiner)
            and how in (row.how, loop_of(row.how))
        ]
        return min(times, default=float("nan"))

    def faster(self, name: str, r: int, combiner: str = "NSGD") -> str:
        """The faster layout of C: "together" or "side by side"; a dash where there is none."""
        times = {
            row.how.removeprefix("C, "): row.microseconds
            for row in self.rows
            if (row.name, row.r, row.combiner) == (name, r, combiner) and loop_of(row.how) == "C"
        }
        return min(times, key=times.__getitem__, default="–")

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
    for name, how, limits in LIMITS:
        for r in (3, 21, 90):
            form = {"BSGD-WU": ""}.get(name, " (P form)" if how == "P form" else " (safe default)")
            if r in limits:
                ratio = time(name, r, how) / time(name, r, "C, together")
                yield Requirement(f"{name}{form} / C together, r = {r}", "<=", limits[r], ratio)
            ratio, layout = time(name, r, how) / time(name, r, "C"), found.faster(name, r)
            what = f"{name}{form} / the faster C ({layout}), r = {r}"
            yield Requirement(what, "<=", 1, ratio, aim=True)
    for family in ("BSGD", "BNM"):
        for r, limit in ((3, 1.5), (21, 1.25), (90, 1.25)):
            ratio = time(f"{family}-DR", r) / time(f"{family}-WU", r)
            yield Requirement(f"{family}-DR / {family}-WU, r = {r}", "<=", limit, ratio)
    lam = found.sparing.get("mean_lambda", float("nan"))
    sparing = next((row.name for row in found.rows if row.name.startswith("BNM-RU,")), "")
    ratio = time("BNM-WU", 90) / time(sparing, 90)
    yield Requirement(f"BNM-WU / BNM-RU, r = 90, mean λ {lam:.3f}", ">=", 5, ratio)
    for r in (3, 21, 90):
        ratio = time("BSGD-RU", r) / time("BSGD-WU", r)
        yield Requirement(f"BSGD-RU / BSGD-WU, r = {r}", "<=", 1.5, ratio)
    count = found.trials["trials"]
    for family in ("BSGD", "BNM"):
        times = found.trials[family]
        ours, c = (
            [how for how in times if (loop_of(how) == "C") is wish] for wish in (False, True)
        )
        how = min(ours, key=times.__getitem__)
        ratio = times[how] / min((times[each] for each in c), default=float("nan"))
        what = f"{count} trials, {family}-WU ({how}) / C, r = 3"
        yield Requirement(what, "<=", 0.8, ratio, aim=True)
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
    first = found.first
    least = first["bnm_wu, r = 8, cold"]["run_seconds"]
    for r, limit in ((8, 5), (54, 8)):
        cold, warm = (first.get(f"auto, r = {r}, {cache}", {}) for cache in ("cold", "warm"))
        ratio = cold.get("run_seconds", float("nan")) / least
        what = f"first result, CPU: auto, r = {r} / bnm_wu, r = 8"
        yield Requirement(what, "<=", limit, ratio)
        over = warm.get("over_import_jax_seconds", float("nan"))
        yield Requirement(f"auto, r = {r}, warm cache: CPU s over import jax", "<=", 1.5, over)
    for name, cost in found.singles.items():
        what = f"{name}: CPU µs of a pair of calls above a step"
        yield Requirement(what, "<=", 60, cost["pair"] - cost["step"], aim=True)
        if name.startswith("auto"):
            yield Requirement(f"{name}: longest pair of calls / median", "<=", 20, cost["longest"])
    cold, warm = found.command.values()
    yield Requirement("jboost run with auto, 400 rows: CPU warm / cold", "<=", 0.25, warm / cold)
    programs = sum(cost["compiled_by_second_length"] for cost in first.values())
    yield Requirement("programs compiled by a second length", "<=", 0, programs)
    programs = sum(found.compiled_again.values())
    yield Requirement("programs compiled by second runs", "<=", 0, programs)
    broken = sum(not row.finite for row in found.rows if row.how != "peer")
    yield Requirement("rows with an output that is not finite", "<=", 0, broken)


def _compile(row: Row) -> float:
    return row.compile


def show(found: Results) -> None:
    """Print the tables and the requirements."""
    print(
        "\nµs per step, m = 20, float32, one stream; C with the learners together and side by side;"
    )
    print("× is the time divided by that of the faster C")
    head = f"{'r':>3}  {'model':<19} {'combiner':<8} {'together':>8} {'side':>8} {'jboost':>9}"
    print(f"{head} {'×':>6} {'P form':>9} {'×':>6} {'compile s':>10} {'MSE':>8}")
    for row in found.rows:
        if row.how != "jboost":
            continue
        at = (row.name, row.r)
        hows = ("C", "P form", "C, together", "C, side by side")
        c, fast, together, side = (found.time(*at, how, row.combiner) for how in hows)
        print(
            f"{row.r:>3}  {row.name:<19} {row.combiner:<8} {_number(together):>8} "
            f"{_number(side):>8} {_number(row.microseconds):>9} "
            f"{_number(row.microseconds / c):>6} {_number(fast):>9} {_number(fast / c):>6} "
            f"{row.compile:>10.2f} {row.mse:>8.4f}"
        )
    if found.sparing:
        print(
            f"     mean λ 0.06: σ_m² = {found.sparing['target_mse']:.3g}, found by bisection; the "
            "others have 0.01"
        )
    if any(row.how == "peer" for row in found.rows):
        print("\npeers, µs per sample; × is the time divided by BSGD-WU's")
        for row in found.rows:
            if row.how == "peer":
                ratio = row.microseconds / found.time("BSGD-WU", row.r)
                print(f"{row.r:>3}  {row.name:<26} {_number(row.microseconds):>9} {ratio:>8,.0f}")
    trials = found.trials
    print(f"\n{trials['trials']} trials of {trials['T']:,} steps, r = 3, µs per trial and step")
    for how in trials["BSGD"]:
        times = "  ".join(f"{f}-WU {_number(trials[f][how]):>7}" for f in ("BSGD", "BNM"))
        print(f"     {how:<26} {times}")
    print(f"\nBSGD-WU, r = 3: µs per step by T (one call by itself: "
          f"{found.growth['call_microseconds']:.0f} µs)")  # fmt: skip
    for T, spent in found.growth["microseconds"].items():
        print(f"     {int(T):>12,} {_number(spent):>9}")
    later = found.memory["added_after_first_block_mb"]
    print(f"\nmemory added by the stream after its first block: {later:.0f} MB")
    print("import, CPU s: " + ", ".join(f"{k} {v:.2f}" for k, v in found.imports.items()))
    print("first result of 2,000 rows, CPU s; in all less import jax; programs of a second length")
    for what, cost in found.first.items():
        run, over, programs = cost.values()
        print(f"     {what:<26} {run:>7.2f} {over:>7.2f} {programs:>3.0f}")
    times = ", ".join(f"{name} {spent:.1f}" for name, spent in found.command.items())
    print(f"jboost run with auto on 400 rows, CPU s: {times}")
    print(
        "single calls, CPU µs of a step in a run, of a pair of calls, of a call without rows; the"
    )
    print("longest pair divided by the median")
    for what, cost in found.singles.items():
        print(f"     {what:<34} " + " ".join(f"{_number(spent):>8}" for spent in cost.values()))
    print("least squares on P alone, 24 copies side by side, µs: the whole matrix, one triangle")
    for r, times in found.storages.items():
        print(f"     r = {r:<4} " + " ".join(f"{_number(spent):>8}" for spent in times.values()))
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
    recorded = found._asdict()
    recorded["rows"] = [row._asdict() for row in found.rows]
    recorded["requirements"] = [
        {**need._asdict(), "verdict": need.verdict} for need in requirements(found)
    ]
    return recorded


def figure(found: Results) -> Any:
    """Dots on a logarithmic axis, one panel per width, one line per model or peer."""
    names = list(dict.fromkeys(row.name for row in found.rows))
    labels = {
        "jboost": "jboost, safe default", "P form": "jboost, P form", "C": "C, the faster layout",
    }  # fmt: skip
    height = {name: len(names) - k for k, name in enumerate(names)}
    drawing, axes = plots.grid(1, len(found.widths), width=3.6, height=0.28 * len(names) + 1.3)
    for panel, (ax, r) in enumerate(zip(axes[0], found.widths, strict=True)):
        for how, (marker, filling) in LOOKS.items():
            mine = [
                row for row in found.rows
                if (row.r, loop_of(row.how)) == (r, how) and row.combiner in ("NSGD", "")
                and (how != "C" or row.how == f"C, {found.faster(row.name, r)}")
            ]  # fmt: skip
            if mine:
                look = {} if marker == "x" else {"facecolors": filling, "edgecolors": "black"}
                if marker == "x":
                    look = {"color": "black"}
                times = [row.microseconds for row in mine]
                heights = [height[row.name] for row in mine]
                label = labels.get(how, how)
                ax.scatter(times, heights, s=34, marker=marker, label=label, zorder=3, **look)
        ax.set_xscale("log")
        ax.set_title(f"r = {r}", fontsize="medium")
        ax.set_xlabel("µs per sample")
        ax.set_yticks(list(height.values()), list(height) if panel == 0 else [""] * len(height))
        ax.grid(color="0.9", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    handles, shown = axes[0][0].get_legend_handles_labels()
    drawing.legend(handles, shown, loc="outside lower center", ncols=len(shown), frameon=False)
    return drawing


def _number(value: float) -> str:
    """Three digits, or a dash."""
    if np.isnan(value):
        return "–"
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
