"""The accuracy table of the README at the top, from the JSON of ``accuracy.py``."""

from __future__ import annotations

from tables import Record, markdown


def accuracy(record: Record) -> str:
    """auto beside the best of river on every set, scaled input; times of the same run."""
    results = record["results"]
    rows = []
    for part in ("chosen on", "held out"):
        for name, row in results["summary"][part]["sets"].items():
            block = results["sets"][name]["scaled"]
            forest = block["river us"].get("ARFRegressor")
            rows.append([
                name,
                f"{row['auto']:.4f}",
                f"{row['theirs']:.4f}",
                row["river"],
                f"{row['ratio']:.2f}",
                f"{row['raw over scaled']:.2f}",
                f"{block['auto']['us']:.0f}",
                "–" if forest is None else f"{forest:.0f}",
            ])  # fmt: skip
    mean = results["summary"]["all"]
    rows.append(["geometric mean", "", "", "", f"{mean:.2f}", "", "", ""])
    head = ["", "auto", "best of river", "which", "ratio", "raw / scaled", "auto, µs", "ARF, µs"]
    return markdown(head, rows)
