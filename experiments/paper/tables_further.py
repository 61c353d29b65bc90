"""Tables on trees and on claims of the text, and the ratios of Table 1."""

from __future__ import annotations

from experiments.paper.ledger import significant
from experiments.paper.protocol import BOOSTED, TABLED
from experiments.shared.markdown import Record, number, run_line, table
from jboost.paper.datasets import FURTHER, SETS

MARKS = {1: "−", 0: "", -1: "+"}  # the error is lower or higher by more than chance


def title(name: str, block: Record) -> str:
    """The name of a stream or data set, marked where its data are a stand-in."""
    described = {**SETS, **FURTHER}
    text = described[name].title if name in described else name
    return text + (" (STAND-IN)" if block.get("stand_in") else "")


def ratios(record: Record) -> str:
    """The error of every booster over its single learner's, for every set and combiner."""
    rows = []
    for name, block in record["results"].items():
        for combiner in TABLED:
            cells = [block["cells"][n]["combiners"][combiner] for n in BOOSTED]
            rows.append([title(name, block) if combiner == TABLED[0] else "", combiner,
                         *(ratio(cell) for cell in cells)])  # fmt: skip
    line = run_line(record, "models", "m", "max_reuse", "dependence", "keys")
    return f"{line}\n\n{table(['set', 'combiner', *BOOSTED], rows)}"


def ratio(cell: Record) -> str:
    """A ratio with the mark of a difference beyond chance."""
    if cell["ratio"] is None or cell["mse"]["mean"] is None:
        return "diverges"
    gain = cell["gain"]
    return f"{cell['ratio']:.4f} {MARKS[significant(gain['mean'], gain['error'])]}".strip()


NOT_RECORDED = "There is no record of `trees.py` yet: `python experiments/paper/trees.py --record`."


def trees(record: Record | None) -> str:
    """All on boosted trees: the figure, the table of boosted trees, that of single ones."""
    if record is None:
        return NOT_RECORDED
    picture = "![Error against depth of one tree and of boosted trees](results/trees.png)"
    return (
        f"{picture}\n\n{boosted_trees(record)}\n\nOne tree by its depth:\n\n{single_trees(record)}"
    )


def boosted_trees(record: Record, combiner: str = "forward RLS") -> str:
    """Boosted trees beside one tree, independent trees, one of equal size and one of equal time."""
    rows = []
    for name, block in record["results"].items():
        for label, counts in block["boosted"].items():
            mode, depth = label.split(", depth ")
            one = block["single"][depth]["mse"]
            for m, entry in counts.items():
                cell = entry["combiners"][combiner]
                mse = cell["mse"]["mean"]
                against = [
                    f"{mse / (mse + cell['gain'][what]['mean']):.3f} "
                    f"{MARKS[significant(cell['gain'][what]['mean'], cell['gain'][what]['error'])]}"
                    + (f" ({entry['others'][what]})" if what.startswith("equal") else "")
                    for what in ("one tree", "c = 0", "equal size", "equal time")
                ]
                best = f"{cell['best']['mse'] / one:.3f} at {cell['best']['multiple']:g}"
                first = label == next(iter(block["boosted"])) and m == next(iter(counts))
                rows.append([title(name, block) if first else "", f"{mode}, {m} of depth {depth}",
                             number(one), number(mse), *against, best,
                             number(entry["microseconds"], 1)])  # fmt: skip
    head = ["stream", "trees", "one tree", "boosted", "ratio to one tree", "to c = 0",
            "to equal size (depth)", "to equal time (depth)", "best σ_m²", "µs a step"]  # fmt: skip
    line = run_line(record, "untuned", "multiples", "keys", "max_reuse", "best_forgetting_of")
    return f"{line} Data: {record['settings']['data']}.\n\n{table(head, rows)}"


def single_trees(record: Record) -> str:
    """The error and the time of one tree by its depth."""
    rows = []
    for name, block in record["results"].items():
        single = block["single"]
        least = min(record["settings"]["forgetting"])
        cells = [
            f"{d}: {row['mse']:.4f}, β {row['forgetting']:g}"
            f"{' AT THE EDGE' if row['forgetting'] == least else ''}, {row['microseconds']:.1f} µs"
            for d, row in single.items()
        ]
        rows.append(
            [title(name, block), f"{block['T']:,}", f"{block['features']}", "; ".join(cells)]
        )
    return table(["stream", "rows", "r", "depth: MSE, best β, time a step"], rows)


def family(record: Record) -> str:
    """The trees of the references, at two memories, and the bound of the context tree."""
    models = ("one line", "one of N", "context tree", "PiecewiseLinear")
    rows = []
    for name, block in record["results"].items():
        least = {memory: min(block[memory].values()) for memory in ("1", "0.99")}
        cells = [
            f"**{v:.4f}**" if (v := block[memory][model]) == least[memory] else f"{v:.4f}"
            for memory in ("1", "0.99")
            for model in models
        ]
        found = block["regret"]
        rows.append([title(name, block), *cells, f"{found['loss']:.0f}", f"{found['bound']:.0f}"])
    head = ["stream", *(f"β = 1: {m}" if m == models[0] else m for m in models),
            *(f"β = 0.99: {m}" if m == models[0] else m for m in models),
            "loss of the context tree", "its bound"]  # fmt: skip
    return f"{run_line(record, 'T', 'depth', 'ridge')}\n\n{table(head, rows)}"


def readings(record: Record) -> str:
    """The two readings of "the error" of Algorithm 2, and data reuse at several K."""
    results = record["results"]
    shown = ("uniform", "RLS", "forward RLS")
    rows = []
    for name in ("BSGD-WU", "BNM-WU"):
        for label in ("before", "after"):
            errors = results[f"after, {name}"][label]
            text = f"{name}, error {label} the update"
            rows.append([text, *(number(errors[c]["mean"]) for c in shown)])
    for name in ("BSGD-DR", "BNM-DR"):
        for K, row in results[f"K, {name}"].items():
            rows.append([f"{name}, K = {K}", *(number(row["mse"][c]["mean"]) for c in shown)])
    for stream in (key for key in results if key.startswith("mixture")):
        for c, row in results[stream].items():
            rows.append([f"{stream}, c = {c}", *(number(row[k]["mean"]) for k in shown)])
    line = run_line(record, "T", "reading", "m")
    return f"{line}\n\n{table(['Duffing, or the stream named', *shown], rows)}"
