"""The tables of tuning.md, from the JSON of ``tuning.py``."""

from __future__ import annotations

from tables import Record, markdown


def verdicts(record: Record) -> str:
    """What must hold, and what was found."""
    rows = [
        [row["wanted"], row["got"], "yes" if row["holds"] else "**no**"]
        for row in record["results"]["verdicts"]
    ]
    return markdown(["wanted", "found", "holds"], rows)


def self_tuning(record: Record) -> str:
    """Errors in percent above the best fixed step's, by stream, model and start."""
    rows = []
    for stream, found in record["results"]["self-tuning"].items():
        for name in ("SGD", "BSGD-WU", "BSGD-WU, around"):
            own = found[name]
            row = [stream, name, f"{own['best step']:.3g}", f"{own['mse']:.4g}"]
            for start in ("0.1 ×", "10 ×"):
                row += [f"{100 * (own[start][how] - 1):+.1f}" for how in ("fixed", "self-tuning")]
            rows.append(row)
    head = ["stream", "model", "best step", "its MSE"]
    starts = [text for size in ("step / 10", "step × 10") for text in (size, "self-tuning")]
    return markdown([*head, *starts], rows)
