"""The section of the technical report on trees."""

from __future__ import annotations

import itertools
from typing import Any

from experiments.paper.ledger import Records, outcome, significant
from experiments.paper.tables_further import NOT_RECORDED
from experiments.shared.markdown import table


def trees(r: Records, records: Records) -> str:
    """What boosting gains over one tree, by mode, and against equal size and time."""
    boosted = (
        boosted_trees(r["trees"], records["trees"]["settings"]) if "trees" in r else NOT_RECORDED
    )
    family = r["tree_family"]
    wins = sum(
        min(b["1"]["PiecewiseLinear"], b["0.99"]["PiecewiseLinear"])
        < min(b["1"]["context tree"], b["0.99"]["context tree"])
        for b in family.values()
    )
    held = sum(b["regret"]["holds"] for b in family.values())
    return (
        f"The abstract names tree-based piecewise linear learners as an extension. {boosted}\n\n"
        f"The catalogue has them as `bpl_wu`, `bpl_dr` and `bpl_ru`. The trees of the paper's "
        f"references are run too (`tree_family.py`): a context tree over a fixed partition "
        f"(Kozat, Singer, Zeitler, IEEE TSP 2007), whose regret bound holds on {held} of "
        f"{len(family)} runs, "
        f"and the hard choice of one of N filters. `PiecewiseLinear`, which learns where to split "
        f"as the trees of Vanli and Kozat (2014) and of Khan do, has the lower error of the "
        f"better of two memories on {wins} of {len(family)} streams. So it stays the library's "
        f"tree, and the context tree an experiment. (Vanli and Kozat, IEEE TSP 2014, "
        f"arXiv:1311.6392; Vanli, Sayin and Kozat, arXiv:1401.6413, on incremental trees.)"
    )


def boosted_trees(streams: Any, settings: dict[str, Any]) -> str:
    """The outcomes of boosted trees against each of their rivals, and the figure."""
    whats = ("one tree", "c = 0", "equal size", "equal time")
    draws = {n: b for n, b in streams.items() if n.startswith("piecewise")}
    sets = {n: b for n, b in streams.items() if n not in draws}
    rows = []
    for kind, blocks in (("piecewise", draws), ("sets", sets)):
        for m, depth, mode in itertools.product(("5", "20"), (2, 4), ("WU", "RU", "DR")):
            trees_of = f"{mode}, depth {depth}"
            counts = [block["boosted"].get(trees_of, {}) for block in blocks.values()]
            entries = [c[m]["combiners"]["forward RLS"] for c in counts if m in c]
            if entries:
                label = f"{kind}: {m} of depth {depth}, {mode}"
                rows.append([label, *(tally(entries, what) for what in whats)])
    least = min(settings["forgetting"])
    found = [row["forgetting"] for block in streams.values() for row in block["single"].values()]
    edge = f" (for {found.count(least)} of {len(found)} the least that was tried, {least:g})"
    edge = edge if least in found else ""
    lengths = {block["T"] for block in streams.values()}
    rows_used = f"the first {' or '.join(f'{T:,}' for T in sorted(lengths, reverse=True))} rows"
    where = f"{len(draws)} draws of the paper's commented-out piecewise stream"
    where += f" and {len(sets)} of the real sets" if sets else ""
    return (
        f"Trees of depth 2 and 4 are boosted on {where}: {rows_used} (the widest sets have fewer "
        f"rows, and on the two widest only trees of depth 2 are boosted). The trees have "
        f"the β that is best for {settings['best_forgetting_of']}{edge}, and "
        f"σ_m² is half of one tree's MSE, which was not tuned. “Equal size” is one tree with "
        f"at least as many leaves, “equal time” the best single tree that takes no more CPU time. "
        f"The table counts the streams on which the boosted trees are lower / within the spread / "
        f"higher, and has the range of the ratio:\n\n"
        f"{table(['streams, trees, mode', *whats], rows)}\n\n"
        f"![Error against depth of one tree and of boosted trees](results/trees.png)"
    )


def tally(entries: list[Any], what: str) -> str:
    """How boosted trees do against one rival: counts of streams, and the range of the ratio."""
    gains = [entry["gain"][what] for entry in entries]
    found = [significant(gain["mean"], gain["error"]) for gain in gains]
    errors = [entry["mse"]["mean"] for entry in entries]
    ratios = [mse / (mse + gain["mean"]) for mse, gain in zip(errors, gains, strict=True)]
    return f"{outcome(found)}; {min(ratios):.3f} – {max(ratios):.3f}"
