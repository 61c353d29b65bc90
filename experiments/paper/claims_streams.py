"""Claims on the generated streams and on the weights, §8.1 and §8.2.

"Literal" and "safe" in the verdicts are readings, the word after them is a combiner.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.paper.ledger import (
    NM,
    READINGS,
    SGD,
    Answer,
    Cases,
    Records,
    claim,
    lower,
    significant,
)
from experiments.paper.protocol import BOOSTED, COMBINERS, TABLED, method, tabled


def cell(r: Records, stream: str, reading: str, name: str, combiner: str) -> dict[str, Any]:
    """The record of one model on one stream, under one reading and combiner."""
    return r[stream]["results"][reading][name]["combiners"][combiner]


def mse(r: Records, stream: str, reading: str, name: str, combiner: str) -> float:
    """The mean squared error of that record."""
    return cell(r, stream, reading, name, combiner)["mse"]["mean"]


def alone(r: Records, stream: str, name: str) -> float:
    """The mean squared error of a single learner."""
    return r[stream]["results"]["literal"][name]["mse"]["mean"]


def settings() -> list[tuple[str, str]]:
    """All pairs of a reading and a combiner."""
    return [(reading, combiner) for reading in READINGS for combiner in COMBINERS]


def single(r: Records, stream: str, reading: str, name: str) -> dict[str, Any]:
    """The error of the single learner behind an algorithm, with its spread."""
    return r[stream]["results"][reading][method(name)]["mse"]


def all_below(r: Records, stream: str, names: tuple[str, ...]) -> Cases:
    """The pairs under which all these models beat the single learner, by more than chance."""
    cases = Cases()
    for reading, combiner in settings():
        cells = {name: cell(r, stream, reading, name, combiner) for name in names}
        found = [lower(c["mse"], single(r, stream, reading, n)) for n, c in cells.items()]
        ratios = [c["ratio"] for c in cells.values()]
        words = f"{reading} {combiner} ({min(ratios):.3f} to {max(ratios):.3f})"
        cases.add(min(found), words)
    return cases


def not_above(r: Records, stream: str, others: tuple[int, ...]) -> tuple[Cases, float]:
    """Whether random updates are no worse than the best of other modes, and the largest excess."""
    cases, worst = Cases(), 0.0
    for reading, combiner in settings():
        for names in (SGD, NM):
            ru, *rest = (cell(r, stream, reading, names[i], combiner)["mse"] for i in (2, *others))
            best = min(rest, key=lambda c: c["mean"])
            excess = ru["mean"] / best["mean"] - 1
            worst = max(worst, excess)
            words = f"{reading} {combiner} {names[2]} {100 * excess:+.2f} %"
            cases.add(-1 if lower(ru, best) < 0 else 1, words)
    return cases, worst


# The stationary experiment


@claim("§8.1", "methods “boost the performance of a single linear SGD”")
def _(r: Records) -> Answer:
    cases = all_below(r, "stationary", SGD)
    text = (
        f"MSE over SGD's {alone(r, 'stationary', 'SGD'):.4f}, least to largest of the three modes. "
    )
    return cases.verdict, text + cases.text("Below it under", "not below it under")


@claim("§8.1", "stationary data: NM cannot be improved, it “achieves the lowest MSE”")
def _(r: Records) -> Answer:
    cells = [(a, cell(r, "stationary", a, n, c)) for a, c in settings() for n in NM]
    ratios = [c["ratio"] for _, c in cells]
    found = [lower(c["mse"], single(r, "stationary", a, "NM")) for a, c in cells]
    text = f"BNM over NM's {alone(r, 'stationary', 'NM'):.5f}: {min(ratios):.6f} to "
    text += f"{max(ratios):.3f}; of {len(found)} cases {found.count(1)} are lower than NM by more "
    text += f"than chance, {found.count(-1)} higher"
    gain = 100 * (1 - min(ratios))
    if 1 not in found:
        return "true", text
    return ("in part" if gain < 0.1 else "false"), f"{text}; the largest gain is {gain:.4f} %"


@claim("§8.1", "random updates achieve the performance of the other two modes")
def _(r: Records) -> Answer:
    cases, worst = not_above(r, "stationary", (0, 1))
    text = f"RU is at most {100 * worst:.1f} % above the better of WU and DR. It is above by more "
    text += f"than chance in {len(cases.words[-1])} of 24 cases: "
    return cases.verdict, text + "; ".join(cases.words[-1])


@claim("§8.1", "random updates work “with a much lower complexity”")
def _(r: Records) -> Answer:
    block = {a: r["stationary"]["results"][a] for a in READINGS}
    words = [
        f"{a} {n}: {block[a][n]['updates']:.1f} updates a step"
        for a in READINGS
        for n in ("BSGD-RU", "BNM-RU")
    ]
    least = min(block[a][n]["updates"] for a in READINGS for n in ("BSGD-RU", "BNM-RU"))
    return ("in part" if least < 15 else "false"), f"{'; '.join(words)}; WU makes 20"


@claim("§8.1", "the improvement grows with the data length")
def _(r: Records) -> Answer:
    cases = Cases()
    for reading, combiner in settings():
        first, half, last = cell(r, "stationary", reading, "BSGD-WU", combiner)["gain"].values()
        words = f"{reading} {combiner} "
        words += " ".join(f"{1e5 * g['mean']:.1f}" for g in (first, half, last))
        error = np.hypot(first["sd"], last["sd"]) / np.sqrt(last["n"])
        grows = significant(last["mean"] - first["mean"], error)
        begins = significant(first["mean"], first["sd"] / np.sqrt(first["n"]))
        cases.add(min(grows, begins), words)
    text = "SGD's ASE minus BSGD-WU's at T/4, T/2, T, in 1e-5 (negative: worse than SGD). "
    return cases.verdict, text + cases.text("Positive and growing", "Not")


@claim("§4.2", "a σ_m² below the noise power turns “most of the weights into 1”")
def _(r: Records) -> Answer:
    lam = {a: r["stationary"]["results"][a]["BNM-WU"]["mean_lam"] for a in READINGS}
    text = ", ".join(f"{a} {v:.3f}" for a, v in lam.items())
    fits = min(lam.values()) > 0.9
    return ("true" if fits else "false"), f"σ_m² 0.004 under noise of 0.01: mean λ of BNM-WU {text}"


# The chaotic experiment


@claim("§8.2", "“superior performance of our algorithms over a single WL”")
def _(r: Records) -> Answer:
    cases = all_below(r, "duffing", BOOSTED)
    text = (
        f"SGD {alone(r, 'duffing', 'SGD'):.4f}, NM {alone(r, 'duffing', 'NM'):.4f}; the six ratios"
    )
    return cases.verdict, f"{text}. {cases.text('All below', 'Some above')}"


@claim("§8.2", "σ_m² is “higher than the achieved MSE” and still improves it")
def _(r: Records) -> Answer:
    a, b = (mse(r, "duffing", "literal", n, "RLS") for n in ("BSGD-WU", "BNM-WU"))
    text = (
        f"literal RLS: BSGD-WU {a:.4f} under σ_m² 0.25, so for SGD; BNM-WU {b:.4f} above its 0.17"
    )
    return ("in part" if a < 0.25 and b > 0.17 else "true"), text


@claim("§8.2", "among the SGD ones “data reuse … better performance”")
def _(r: Records) -> Answer:
    cases = Cases()
    for reading, combiner in settings():
        wu, dr, ru = (cell(r, "duffing", reading, n, combiner)["mse"] for n in SGD)
        words = f"{reading} {combiner} ({wu['mean']:.4f} {dr['mean']:.4f} {ru['mean']:.4f})"
        cases.add(min(lower(dr, wu), lower(dr, ru)), words)
    return cases.verdict, "WU, DR, RU. " + cases.text("DR is lowest", "Not lowest")


@claim("§8.2", "random updates have “significantly lower time consumption”")
def _(r: Records) -> Answer:
    parts, saved = [], []
    for stream, block in r["weights"]["results"]["work"].items():
        for names in (SGD, NM):
            if names[0] in block and names[2] in block:
                wu, ru = block[names[0]], block[names[2]]
                saved.append(1 - ru["microseconds"] / wu["microseconds"])
                parts.append(
                    f"{stream} {names[2]} {ru['updates']:.1f} updates, {ru['microseconds']:.1f} µs "
                    f"against {wu['microseconds']:.1f} of WU"
                )
    answer = "true" if min(saved) > 0.2 else "in part" if max(saved) > 0.2 else "false"
    return (
        answer,
        f"{'; '.join(parts)}. Time is saved only where an update is costly and is really skipped",
    )


@claim("§5.3, §9", "random updates do not degrade the MSE")
def _(r: Records) -> Answer:
    parts, cases = [], Cases()
    for stream in ("stationary", "duffing"):
        found, worst = not_above(r, stream, (0,))
        count = len(found.words[-1])
        cases.add(-1 if count else 1, stream)
        parts.append(f"{stream} {count} of 24 cases, by at most {100 * worst:.1f} %")
    above, worst, total = 0, 0.0, 0
    for block in tabled(r["table1"]["results"]).values():
        for names in (SGD, NM):
            for c in TABLED:
                wu, ru = (block["cells"][n]["combiners"][c] for n in (names[0], names[2]))
                error = np.hypot(wu["gain"]["error"], ru["gain"]["error"])
                total += 1
                if significant(ru["gain"]["mean"] - wu["gain"]["mean"], error) < 0:
                    above += 1
                    worst = max(worst, ru["mse"]["mean"] / wu["mse"]["mean"] - 1)
    cases.add(-1 if above else 1, "Table 1")
    parts.append(f"Table 1 {above} of {total}, by at most {100 * worst:.1f} %")
    return cases.verdict, f"RU is above WU by more than chance: {'; '.join(parts)}"


# Weights


@claim("§8.2", "the weights “do not change monotonically”")
def _(r: Records) -> Answer:
    turns = r["weights"]["results"]["turning_points"]
    text = ", ".join(f"λ^({k}) {n}" for k, n in turns.items())
    return ("true" if min(turns.values()) > 5 else "false"), f"turns in 100 block means: {text}"


@claim("§8.2", "weights of the last learners are “generally smaller”")
def _(r: Records) -> Answer:
    mean = np.array(r["weights"]["results"]["mean"])
    text = (
        f"mean λ falls at {int((np.diff(mean) < 0).sum())} of {len(mean) - 1} steps along the chain"
    )
    fits = (np.diff(mean) < 0).all()
    return ("true" if fits else "in part"), f"{text}, from {mean[1]:.3f} (k = 2) to {mean[-1]:.3f}"


@claim("§8.2", "the 5th learner's weights are larger than the 10th's and 20th's")
def _(r: Records) -> Answer:
    w = r["weights"]["results"]
    means = [w["mean"][k - 1] for k in (5, 10, 20)]
    shares = w["share_of_steps_5_at_least_10"], w["share_of_steps_10_at_least_20"]
    text = f"means {means[0]:.3f} {means[1]:.3f} {means[2]:.3f}"
    fits = means[0] > means[1] > means[2]
    return (
        "true" if fits else "false"
    ), f"{text}; so at {100 * shares[0]:.0f} % and {100 * shares[1]:.0f} % of the samples"


@claim("§4", "λ is near 1 where most learners before missed σ_m², near 0 where they met it")
def _(r: Records) -> Answer:
    w = r["weights"]["results"]
    a, b = w["mean_where_before_missed"], w["mean_where_before_met"]
    return (
        "true" if a > 0.8 and b < 0.4 else "in part"
    ), f"mean λ {a:.3f} against {b:.3f} (Duffing)"


@claim("§8.2, §8.3", "a larger c gives lower weights")
def _(r: Records) -> Answer:
    parts, falls = [], []
    for name in ("BSGD-RU", "BNM-RU"):
        block = r["parameters"]["results"][name]["dependence"]
        work = [row["updates"] for row in block["rows"]]
        at = int(np.argmin(work))
        falls.append(at == len(work) - 1)
        parts.append(
            f"{name} {work[0]:.1f} updates at c = 0, {work[at]:.1f} at {block['values'][at]:g}, "
            f"{work[-1]:.1f} at {block['values'][-1]:g}"
        )
    return ("true" if all(falls) else "in part"), "; ".join(parts)
