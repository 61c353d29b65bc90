"""Claims on the parameters and on the real data sets, §8.3 and §8.4."""

from __future__ import annotations

import itertools

import numpy as np

from experiments.paper.ledger import NM, SGD, Answer, Records, claim, under, verdict
from experiments.paper.protocol import ALGORITHMS, BOOSTED, DRAWN, TABLE1, TABLED, method

# Parameters


def best(r: Records, name: str, parameter: str, combiner: str) -> tuple[float, float]:
    """The best value of a parameter under a combiner, and the error there."""
    block = r["parameters"]["results"][name][parameter]
    errors = [row["mse"][combiner]["mean"] for row in block["rows"]]
    at = int(np.argmin(errors))
    return block["values"][at], errors[at]


def optimum(r: Records, parameter: str, low: float, high: float) -> Answer:
    """Whether the best value of a parameter lies between two limits."""
    passed, failed = [], []
    for name in ("BSGD-RU", "BNM-RU"):
        for combiner in DRAWN:
            value, error = best(r, name, parameter, combiner)
            text = f"{name} {combiner} at {value:g} ({error:.4f})"
            (passed if low <= value <= high else failed).append(text)
    return verdict(passed, failed), f"literal. Near: {under(passed)}. Elsewhere: {under(failed)}"


def at_value(r: Records, name: str, parameter: str, value: float, combiner: str) -> float:
    """The error at one value of a parameter."""
    block = r["parameters"]["results"][name][parameter]
    return block["rows"][block["values"].index(value)]["mse"][combiner]["mean"]


@claim("§8.3", "m up to 30 improves “significantly”, more does not")
def _(r: Records) -> Answer:
    passed, failed = [], []
    for name in ("BSGD-RU", "BNM-RU"):
        for combiner in DRAWN:
            few, thirty, sixty = (at_value(r, name, "m", m, combiner) for m in (5, 30, 60))
            text = f"{name} {combiner} {few:.4f} {thirty:.4f} {sixty:.4f}"
            fits = thirty < 0.99 * few and sixty > 0.99 * thirty
            (passed if fits else failed).append(text)
    text = "MSE at m = 5, 30, 60 (literal)"
    return verdict(passed, failed), f"{text}. So: {under(passed)}. Not so: {under(failed)}"


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
    passed, failed = [], []
    for name in ("BSGD-RU", "BNM-RU"):
        for combiner in DRAWN:
            one, large = (at_value(r, name, "dependence", c, combiner) for c in (1.0, 100.0))
            text = f"{name} {combiner} {one:.4f} to {large:.4f}"
            (passed if large > one else failed).append(text)
    text = "MSE at c = 1 and 100 (literal)"
    return verdict(passed, failed), f"{text}. Worse: {under(passed)}. Better: {under(failed)}"


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
    counts = {}
    for combiner in TABLED:
        multiples = [
            block["cells"][name]["combiners"][combiner]["multiple"]
            for block in r["table1"]["results"].values()
            for name in BOOSTED
        ]
        near = sum(0.5 <= v <= 2 for v in multiples)
        counts[combiner] = f"{combiner} {near} of {len(multiples)}"
    shares = [int(v.split()[-3]) / int(v.split()[-1]) for v in counts.values()]
    answer = "true" if min(shares) > 0.8 else "in part" if max(shares) > 0.5 else "false"
    text = "; ".join(counts.values())
    return answer, f"cells of Table 1 whose best σ_m² is 0.5 to 2 times the single's MSE: {text}"


# Table 1


def wins(
    r: Records, names: tuple[str, ...], sets: tuple[str, ...], limit: float
) -> tuple[list[str], list[str]]:
    """The combiners under which all ratios to the single learner are below a limit; the rest."""
    passed, failed = [], []
    for combiner in TABLED:
        ratios = [
            r["table1"]["results"][s]["cells"][n]["combiners"][combiner]["ratio"]
            for s in sets
            for n in names
        ]
        text = f"{combiner} {sum(v < 1 for v in ratios)} of {len(ratios)} below the single, "
        text += f"{sum(v < 0.99 for v in ratios)} by more than 1 %, "
        text += f"ratios {min(ratios):.3f} to {max(ratios):.3f}"
        (passed if max(ratios) < limit else failed).append(text)
    return passed, failed


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
    """The verdict on a row or more of Table 1: all ratios below the limit, by combiner."""
    passed, failed = wins(r, names, sets, limit)
    return verdict(passed, failed), f"{'; '.join(passed + failed)}; {papers_own(names, sets)}"


@claim("§8.4", "the algorithms “successfully improve” single learners (all of Table 1)")
def _(r: Records) -> Answer:
    return table_claim(r, BOOSTED, tuple(r["table1"]["results"]))


@claim("§8.4", "MV: slightly improved “by using any of the proposed methods”")
def _(r: Records) -> Answer:
    return table_claim(r, BOOSTED, ("mv",))


@claim("§8.4", "Puma8NH: BNM-WU is best, the SGD ones improve too")
def _(r: Records) -> Answer:
    cells = r["table1"]["results"]["puma8nh"]["cells"]
    passed, failed = [], []
    for combiner in TABLED:
        errors = {n: cells[n]["combiners"][combiner]["mse"]["mean"] for n in BOOSTED}
        least = min(errors, key=lambda n: errors[n])
        sgd = all(cells[n]["combiners"][combiner]["ratio"] < 1 for n in SGD)
        text = f"{combiner}: best {least} {errors[least]:.5f}, BNM-WU {errors['BNM-WU']:.5f}, "
        text += f"SGD ones {'all' if sgd else 'not all'} below SGD"
        (passed if least == "BNM-WU" and sgd else failed).append(text)
    return verdict(passed, failed), "; ".join(passed + failed)


@claim("§8.4", "Kinematics: slightly improved")
def _(r: Records) -> Answer:
    return table_claim(r, BOOSTED, ("kin8nm",))


@claim("§8.4", "Compactiv: the NM ones improve significantly (here: by 5 %)")
def _(r: Records) -> Answer:
    return table_claim(r, NM, ("compactiv",), limit=0.95)


@claim("§8.4", "YPMSD: significantly improved (here: by 5 %)")
def _(r: Records) -> Answer:
    return table_claim(r, BOOSTED, ("ypmsd",), limit=0.95)
