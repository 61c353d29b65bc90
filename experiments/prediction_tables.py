"""The tables of prediction.md, from the JSON of ``intervals.py`` and ``prediction.py``."""

from __future__ import annotations

from tables import Record, markdown, number


def intervals(record: Record) -> str:
    """Coverage in all, in the worst 2,000, after a change; widths over the constant control's."""
    head = ["", "Newton", "worst", "after", "width", "BNM-WU", "worst", "after", "width",
            "jackknife", "width", "Bayes", "width"]  # fmt: skip
    rows = []
    for stream, found in record["results"]["intervals"].items():
        cells = [stream]
        for model in ("Newton", "BNM-WU"):
            own = found.get(model, {}).get("conformal", {})
            cells += [number(own.get(part), 1) for part in ("coverage", "worst", "after")]
            cells.append(number(own.get("width"), 2))
        for peer in ("river's jackknife", "river's Bayes"):
            own = found["Newton"].get(peer, {})
            cells += [number(own.get("coverage"), 1), number(own.get("width"), 2)]
        rows.append(cells)
    return markdown(head, rows)


def changes(record: Record) -> str:
    """Samples until the errors are below twice those of before, and what is left of the MSE."""
    head = ["", "alone", "restart", "inflate", "MSE, restart / alone"]
    rows = [
        [
            name,
            _recovery(found["recovery"]),
            _recovery(found["restart"]["recovery"]),
            _recovery(found["inflate"]["recovery"]),
            number(found["restart"]["ratio"], 2),
        ]
        for name, found in record["results"]["change"].items()
    ]
    calm = record["results"]["no change"]
    cost, where = max((found["restart"]["ratio"], name) for name, found in calm.items())
    alarms = record["results"]["false alarms"]
    some = ", ".join(f"{name} {rate:.0f}" for name, rate in alarms.items() if rate)
    without = sum(not rate for rate in alarms.values())
    return (
        f"{markdown(head, rows)}\n\n"
        f"Where nothing changes ({len(calm)} streams and models) the MSE is at most {cost:.3f} "
        f"times that without OnChange ({where}). False alarms in 10⁵ samples: none in {without} "
        f"cases of {len(alarms)}; {some}."
    )


def _recovery(samples: int | None) -> str:
    return "not by the end" if samples is None else f"{samples:,}"


def delays(record: Record) -> str:
    """The MSE by how late answers come."""
    delayed = [str(delay) for delay in record["settings"]["delays"]]
    rows = [
        [name, *(f"{found[delay]:.4g}" for delay in delayed)]
        for name, found in record["results"]["delays"].items()
    ]
    return markdown(["", *(f"{delay} late" for delay in delayed)], rows)


def targets(record: Record) -> str:
    """Eight targets at once, in times of one."""
    rows = [
        [name, number(found["times one run"], 1), f"{found['difference']:.0e}"]
        for name, found in record["results"]["targets"].items()
    ]
    return markdown(["", "time of 8 targets / of one", "largest difference"], rows)


def outliers(record: Record) -> str:
    """Errors on the clean samples, over those of the same model on the clean stream."""
    forms = ("plain", "weight", "target", "no outliers")
    rows = [
        [name, *(f"{found[form]:.4g}" for form in forms)]
        for name, found in record["results"]["outliers"].items()
    ]
    head = ["", "no Huber", 'Huber, form="weight"', 'form="target"', "Huber on the clean stream"]
    return markdown(head, rows)
