"""Claims on the parameters and on the real data sets, §8.3 and §8.4."""

from __future__ import annotations

import itertools
from typing import Any

from experiments.paper.ledger import NM, SGD, Answer, Cases, Records, claim, lower, significant
from experiments.paper.protocol import (
    ALGORITHMS,
    BOOSTED,
    DRAWN,
    TABLE1,
    TABLED,
    method,
    tabled,
)

# Parameters


def swept(r: Records, name: str, parameter: str, combiner: str) -> dict[float, Any]:
    """The errors of a sweep by the value of the parameter."""
    block = r["parameters"]["results"][name][parameter]
    errors = (row["mse"][combiner] for row in block["rows"])
    return dict(zip(block["values"], errors, strict=True))


def optimum(r: Records, parameter: str, low: float, high: float) -> Answer:
    """Whether the best value of a parameter lies between two limits, by more than chance."""
    cases = Cases()
    for name in ("BSGD-RU", "BNM-RU"):
        for combiner in DRAWN:
            errors = swept(r, name, parameter, combiner)
            order = sorted(errors, key=lambda v: errors[v]["mean"])
            inside = next(v for v in order if low <= v <= high)
            outside = next(v for v in order if not low <= v <= high)
            words = f"{name} {combiner} {errors[inside]['mean']:.4f} at {inside:g}, "
            words += f"{errors[outside]['mean']:.4f} at {outside:g}"
            cases.add(lower(errors[inside], errors[outside]), words)
    text = f"literal; the best from {low:g} to {high:g}, and the best elsewhere. "
    return cases.verdict, text + cases.text("Near", "Elsewhere")


@claim("§8.3", "m up to 30 improves “significantly”, more does not")
def _(r: Records) -> Answer:
    cases = Cases()
    for name in ("BSGD-RU", "BNM-RU"):
        for combiner in DRAWN:
            errors = swept(r, name, "m", combiner)
            few, thirty, sixty = (errors[m] for m in (5, 30, 60))
            words = f"{name} {combiner} {few['mean']:.4f} {thirty['mean']:.4f} {sixty['mean']:.4f}"
            more = lower(sixty, thirty)
            cases.add(-1 if more > 0 else lower(thirty, few), words)
    text = "MSE at m = 5, 30, 60 (literal). "
    return cases.verdict, text + cases.text("Improves up to 30 and no more", "Not so")


@claim("§8.3", "“c has an optimum value around 1”")
def _(r: Records) -> Answer:
    return optimum(r, "dependence", 0.7, 1.5)


@claim("§8.3", "a small c gives larger weights and more work")
def _(r: Records) -> Answer:
    parts, fits = [], []
    for name in ("BSGD-RU", "BNM-RU"):
        block = r["parameters"]["results"][name]["dependence"]
        few = [
            row["updates"] for v, row in zip(block["values"], block["rows"], strict=True) if v <= 1
        ]
        fits.append(all(a > b for a, b in itertools.pairwise(few)))
        parts.append(f"{name} {' '.join(f'{v:.1f}' for v in few)}")
    return (
        "true" if all(fits) else "false"
    ), f"updates a step for c from 0 to 1: {'; '.join(parts)}"


@claim("§8.3", "a very large c decreases the effect of boosting")
def _(r: Records) -> Answer:
    cases = Cases()
    for name in ("BSGD-RU", "BNM-RU"):
        for combiner in DRAWN:
            errors = swept(r, name, "dependence", combiner)
            one, large = errors[1.0], errors[100.0]
            words = f"{name} {combiner} {one['mean']:.4f} to {large['mean']:.4f}"
            cases.add(lower(one, large), words)
    return cases.verdict, "MSE at c = 1 and 100 (literal). " + cases.text("Worse", "Better")


@claim("§8.3", "there is “an optimum value around 0.5” of σ_m²")
def _(r: Records) -> Answer:
    return optimum(r, "target_mse", 0.35, 0.7)


@claim("§8.3", "a small σ_m² gives large weights, a large one less work")
def _(r: Records) -> Answer:
    parts, fits = [], []
    for name in ("BSGD-RU", "BNM-RU"):
        rows = r["parameters"]["results"][name]["target_mse"]
        work = [row["updates"] for row in rows["rows"]]
        fits.append(all(a >= b for a, b in itertools.pairwise(work)))
        low, high = rows["values"][0], rows["values"][-1]
        parts.append(f"{name} {work[0]:.1f} updates at {low:g}, {work[-1]:.1f} at {high:g}")
    return ("true" if all(fits) else "false"), f"falls all the way: {'; '.join(parts)}"


@claim("§8.3", "σ_m² must be “in the order of the MSE” to be at its best")
def _(r: Records) -> Answer:
    parts, shares = [], []
    for combiner in TABLED:
        cells = [
            block["cells"][name]["combiners"][combiner]
            for block in tabled(r["table1"]["results"]).values()
            for name in BOOSTED
        ]
        near = sum(0.5 <= c["multiple"] <= 2 and c["where"] == "inside" for c in cells)
        ends = [c["where"] for c in cells]
        shares.append(near / len(cells))
        parts.append(
            f"{combiner} {near} of {len(cells)} ({ends.count('σ_m² = 0')} are best at 0, "
            f"{ends.count('σ_m² = ∞')} at ∞)"
        )
    answer = "true" if min(shares) > 0.8 else "in part" if max(shares) > 0.5 else "false"
    text = "; ".join(parts)
    return answer, f"cells of Table 1 whose best σ_m² is 0.5 to 2 times the single's MSE: {text}"


# Table 1


def outcomes(r: Records, cells: list[tuple[str, str]], combiner: str, limit: float) -> list[int]:
    """1, 0 or −1 for each cell: whether its error is below a limit times the single learner's."""
    found = []
    for s, n in cells:
        block = r["table1"]["results"][s]["cells"]
        gain, base = block[n]["combiners"][combiner]["gain"], block[method(n)]["mse"]
        found.append(significant(gain["mean"] - (1 - limit) * base, gain["error"]))
    return found


def papers_own(names: tuple[str, ...], sets: tuple[str, ...]) -> str:
    """How often the paper's own errors are below those of its own single learner."""
    below = total = 0
    for s in sets:
        row: dict[str, float] = dict(zip(ALGORITHMS, TABLE1[s], strict=True))
        below += sum(row[n] < row[method(n)] for n in names)
        total += len(names)
    return f"the paper's own figures: {below} of {total}"


def table_claim(
    r: Records, names: tuple[str, ...], sets: tuple[str, ...], limit: float = 1.0
) -> Answer:
    """The verdict on a row or more of Table 1: all errors below the limit, by combiner."""
    cases, pairs = Cases(), [(s, n) for s in sets for n in names]
    for combiner in TABLED:
        found = outcomes(r, pairs, combiner, 1.0)
        ratios = [
            r["table1"]["results"][s]["cells"][n]["combiners"][combiner]["ratio"] for s, n in pairs
        ]
        words = f"{combiner} {found.count(1)} below, {found.count(0)} within the spread, "
        words += f"{found.count(-1)} above, ratios {min(ratios):.3f} to {max(ratios):.3f}"
        cases.add(min(outcomes(r, pairs, combiner, limit)), words)
    text = "; ".join(cases.words[1] + cases.words[0] + cases.words[-1])
    return cases.verdict, f"of {len(pairs)} cells: {text}; {papers_own(names, sets)}"


@claim("§8.4", "the algorithms “successfully improve” single learners (all of Table 1)")
def _(r: Records) -> Answer:
    return table_claim(r, BOOSTED, tuple(tabled(r["table1"]["results"])))


@claim("§8.4", "MV: slightly improved “by using any of the proposed methods”")
def _(r: Records) -> Answer:
    return table_claim(r, BOOSTED, ("mv",))


@claim("§8.4", "Puma8NH: BNM-WU is best, the SGD ones improve too")
def _(r: Records) -> Answer:
    cells = r["table1"]["results"]["puma8nh"]["cells"]
    cases = Cases()
    for combiner in TABLED:
        entries = {n: cells[n]["combiners"][combiner] for n in BOOSTED}
        least = min(BOOSTED, key=lambda n: entries[n]["mse"]["mean"])
        sgd = outcomes(r, [("puma8nh", n) for n in SGD], combiner, 1.0)
        words = f"{combiner}: best {least} {entries[least]['mse']['mean']:.5f}, "
        words += f"BNM-WU {entries['BNM-WU']['mse']['mean']:.5f}, {sgd.count(1)} of 3 below SGD"
        cases.add(min(1 if least == "BNM-WU" else -1, *sgd), words)
    return cases.verdict, "; ".join(cases.words[1] + cases.words[0] + cases.words[-1])


@claim("§8.4", "Kinematics: slightly improved")
def _(r: Records) -> Answer:
    return table_claim(r, BOOSTED, ("kin8nm",))


@claim("§8.4", "Compactiv: the NM ones improve significantly (here: by 5 %)")
def _(r: Records) -> Answer:
    return table_claim(r, NM, ("compactiv",), limit=0.95)


@claim("§8.4", "YPMSD: significantly improved (here: by 5 %)")
def _(r: Records) -> Answer:
    return table_claim(r, BOOSTED, ("ypmsd",), limit=0.95)
