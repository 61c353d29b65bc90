"""The tables of the guides about what a model knows, and about filters, from the JSON alone."""

from __future__ import annotations

from collections.abc import Callable

from experiments.shared.markdown import Record, number, run_line, short, table


def blocks(record: Callable[[str], Record]) -> dict[str, str]:
    """Every table by the name in its marker; ``record`` loads a script's JSON."""
    return {
        "explanations": explanations(record("explanations")),
        "losses": losses(record("losses")),
        "filters": filters(record("filters")),
        "flag rates": flag_rates(record("flags")),
        "flag delays": flag_delays(record("flags")),
    }


def explanations(record: Record) -> str:
    """The errors of parts and the time of a row, by model and pairs of orders, beside shap."""
    rows = []
    for name, found in record["results"].items():
        for pairs in (1, 2, 4):
            ours, peer = found[f"jboost, {pairs}"], found.get(f"shap, {pairs}")
            cells = [f"{ours['error']:.2%}", short(ours["ms"]), f"{ours['left']:.0e}"]
            cells += ["–", "–"] if peer is None else [f"{peer['error']:.2%}", short(peer["ms"])]
            rows.append([name, str(pairs), *cells])
    head = ["", "pairs", "error", "ms a row", "left", "shap: error", "ms a row"]
    return f"{run_line(record, 'set', 'T', 'rows')}\n\n{table(head, rows)}"


def losses(record: Record) -> str:
    """Coverage, width and pinball loss of intervals, by set and method."""
    rows = [
        [name, how, f"{100 * row['inside']:.1f}", number(row["width"], 3), number(row["pinball"])]
        for name, found in record["results"].items()
        for how, row in found.items()
    ]
    head = ["set", "bounds", "inside, %", "width", "pinball loss"]
    return f"{run_line(record, 'T', 'coverage', 'step')}\n\n{table(head, rows)}"


def filters(record: Record) -> str:
    """Decibels of each filter in each task, ours and padasip's, and the times of a sample."""
    rows = []
    for task, found in record["results"].items():
        for label, row in found.items():
            ours = [number(row["dB"], 1), short(row["µs"])]
            peer = [number(row.get("padasip dB"), 1), short(row.get("padasip µs"))]
            rows.append([task, label, *ours, *peer])
    head = ["task", "filter", "dB", "µs", "padasip: dB", "µs"]
    return f"{run_line(record, 'T')}\n\n{table(head, rows)}"


def flag_rates(record: Record) -> str:
    """False alarms where nothing happens, by noise."""
    rows = [
        [
            name,
            f"{100 * row['anomalies']:.2f}",
            f"{100 * row['p ≤ 0.05']:.2f}",
            number(row["changes"], 1),
            number(row["drifts, a column"], 1),
        ]
        for name, row in record["results"]["quiet"].items()
    ]
    head = ["noise", "anomalies, %", "p ≤ 0.05, %", "changes per 100,000 rows"]
    return f"{run_line(record, 'T', 'rate')}\n\n{table([*head, 'drifts of a column'], rows)}"


def flag_delays(record: Record) -> str:
    """How fast changes and drifts are found, beside river's detectors."""
    rows = [
        [name, number(row["delay"], 1), f"{100 * row['found']:.0f}", number(row["false"], 1)]
        for name, row in record["results"]["events"].items()
    ]
    return table(["", "median delay, rows", "found, %", "false alarms per 100,000 rows"], rows)
