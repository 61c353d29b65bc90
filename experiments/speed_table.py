"""The table of the README at the top, from the JSON of ``speed.py``."""

from __future__ import annotations

from tables import Record, markdown

WIDTHS = (3, 21, 90)
MODELS = ("BSGD-WU", "BSGD-DR", "BSGD-RU", "BNM-WU", "BNM-DR", "BNM-RU")
PEERS = ("river, 20 bagged linear", "river, 20 linear in EWA", "scikit-learn, one SGD")


def speed(record: Record) -> str:
    """Microseconds a sample and, of jboost, the ratio to the C loop; m = 20."""
    time = {
        (row["name"], row["how"], row["r"]): row["microseconds"]
        for row in record["results"]["rows"]
        if row["combiner"] in ("NSGD", "")
    }

    def cells(name: str, how: str) -> list[str]:
        out = []
        for r in WIDTHS:
            spent, c = time.get((name, how, r)), time.get((name, "C", r))
            out.append("–" if spent is None else f"{spent:.3g}")
            out.append("–" if spent is None or c is None else f"{spent / c:.2f}")
        return out

    rows = [[name, *cells(name, "jboost")] for name in MODELS]
    rows.append(['BNM-WU, `storage="covariance"`', *cells("BNM-WU", "P form")])
    rows += [[name, *cells(name, "peer")] for name in PEERS]
    head = [text for r in WIDTHS for text in (f"r = {r}, µs", "× C")]
    return markdown(["", *head], rows)
