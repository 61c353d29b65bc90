"""The tables of the combiners and of the related work, from their JSON."""

from __future__ import annotations

from typing import Any

from tables import Record, markdown, marked, number, run_line, short


def errors(record: Record) -> str:
    """MSE of every combiner on every stream, over that of the best expert."""
    streams, means = record["results"]["streams"], record["results"]["over the best expert"]
    names = [name for name, block in streams.items() if "hindsight" in block]
    columns = ("best mix", "best linear")
    rows = []
    for combiner in means:
        mean = means[combiner]
        rows.append([combiner, number(mean["mean"], 3), number(mean["largest"], 2)])
        rows[-1] += [ratio(streams[name], streams[name]["mse"][combiner]) for name in names]
    for column in columns:
        rows.append([f"{column}, in hindsight", "–", "–"])
        rows[-1] += [ratio(streams[name], streams[name]["hindsight"][column]) for name in names]
    line = run_line(record, "rows", "T", "data")
    return f"{line}\n\n{markdown(['', 'mean of the real', 'largest', *names], rows)}"


def ratio(block: dict[str, Any], mse: float) -> str:
    over = mse / block["hindsight"]["best expert"]
    return marked(f"{over:.3g}" if over >= 10 else f"{over:.3f}", over)


def regrets(record: Record) -> str:
    """Regret and bound of every combiner that has one."""
    against = record["settings"]["against"]
    rows = []
    for name, block in record["results"]["streams"].items():
        row = [f"{name}, m = {block['experts']}, T = {block['T']:,}"]
        for combiner in against:
            cell = block["regret"][combiner]
            broken = "" if cell["holds"] else " VIOLATED"
            row.append(f"{short(cell['regret'])} ≤ {short(cell['bound'])}{broken}")
        rows.append(row)
    head = ["", *(f"{combiner} (best {choice})" for combiner, choice in against.items())]
    return markdown(head, rows)


def related(record: Record) -> str:
    """MSE of the related work on the sets."""
    rows = []
    for name, block in record["results"].items():
        for kind in record["settings"]["grids"]:
            if kind not in block:
                continue
            alone = block[kind]["alone"]["mse"]
            cells = [marked(number(c["mse"]), c["mse"] / alone) for c in block[kind].values()]
            others = [block[kind]["alone"]["unclipped"]["mse"], block["running mean"]]
            others = [number(mse) for mse in (*others, block["last value"])]
            rows.append([f"{name}, {kind}", *cells, *others])
    models = next(iter(record["results"].values()))["SGD"]
    head = ["", *models, "alone, not clipped", "running mean", "last value"]
    line = run_line(record, "rows", "m", "data")
    note = "Predictions clipped to the range ±1; bold: below the learner alone, clipped too."
    return f"{line} {note}\n\n{markdown(head, rows)}"


def requirements(record: Record) -> str:
    """What the non-linear parts were to reach, and what they do."""
    rows = [
        [line["what"], f"{line['sign']} {line['wanted']:g}", short(line["got"]),
         "yes" if line["holds"] else "NO"]
        for line in record["results"]["requirements"]
    ]  # fmt: skip
    line = run_line(record, "rows", "keys", "m", "data")
    return f"{line}\n\n{markdown(['', 'wanted', 'got', 'holds'], rows)}"


def networks(record: Record) -> str:
    """A perceptron under Gauss–Newton, random features and a line under Newton, on raw rows."""
    rows = [
        [name, f"{number(row['mean'])} ± {row['sd']:.4f}", number(row["features"]),
         number(row["line"]), f"{row['us']:.0f}"]
        for name, row in record["results"]["networks"].items()
        if "line" in row
    ]  # fmt: skip
    head = ["", "perceptron, 150 parameters", "300 random features", "line", "perceptron, µs"]
    return markdown(head, rows)
