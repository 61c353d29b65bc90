"""The tables of README.md, from the JSON of the experiments and from nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import claims
import defects
from ledger import LETTERS
from protocol import ALGORITHMS, BOOSTED, COMBINERS, DRAWN, SINGLE, TABLED, method

from jboost.paper.datasets import SETS

Record = dict[str, Any]


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def marked(text: str, ratio: float) -> str:
    """Bold where boosting helped."""
    return f"**{text}**" if ratio < 1 else text


def run_line(record: Record, *names: str) -> str:
    """How the figures were made."""
    settings = record["settings"]
    kept = ", ".join(f"{name} = {settings[name]}" for name in names if name in settings)
    quick = "QUICK run, not the figures of record; " if record["quick"] else ""
    packages = record["versions"]
    kept = f"{kept}; " if kept else ""
    return f"{quick}{kept}{settings['dtype']}, jax {packages['jax']}, {record['seconds']} s."


def comparison(record: Record, reading: str, digits: int) -> str:
    block = record["results"][reading]
    rows = []
    for name in BOOSTED:
        entry = block[name]
        cells = []
        for combiner in COMBINERS:
            cell = entry["combiners"][combiner]
            mse = cell["mse"]
            text = number(mse["mean"], digits)
            text += f" ± {mse['sd']:.{digits}f}" if mse["n"] > 1 else ""
            cells.append(marked(text, cell["ratio"]))
        rows.append([name, *cells, number(entry["mean_lam"], 3), number(entry["updates"], 1)])
    singles = ", ".join(
        f"{name} alone {number(block[name]['mse']['mean'], digits)}" for name in SINGLE
    )
    table = markdown(["", *COMBINERS, "mean λ", "updates a step"], rows)
    return f"{singles}; bold: below the single learner.\n\n{table}"


def both_readings(record: Record, digits: int = 4) -> str:
    line = run_line(record, "T", "trials", "keys", "m", "step_size", "forgetting", "ridge",
                    "target_sgd", "target_nm")  # fmt: skip
    return "\n\n".join(
        [
            line,
            "Literal reading: " + comparison(record, "literal", digits),
            "Safe models: " + comparison(record, "safe", digits),
        ]
    )


def weights(record: Record) -> str:
    results = record["results"]
    means = results["mean"]
    mean = ", ".join(f"{k}: {means[k - 1]:.3f}" for k in (1, 2, 5, 10, 20))
    rows = [
        [f"{stream}: {name}", number(row["updates"], 2), number(row["microseconds"], 2)]
        for stream, block in results["work"].items()
        for name, row in block.items()
    ]
    table = markdown(["safe models, float32", "updates a step", "µs a step"], rows)
    return f"{run_line(record, 'T', 'keys')}\n\nMean λ of learner {mean}.\n\n{table}"


def parameters(record: Record) -> str:
    rows = []
    for name in ("BSGD-RU", "BNM-RU"):
        for parameter, block in record["results"][name].items():
            for combiner in DRAWN:
                errors = [row["mse"][combiner]["mean"] for row in block["rows"]]
                at = errors.index(min(errors))
                rows.append(
                    [
                        f"{name}, {LETTERS[parameter]}",
                        combiner,
                        short(block["values"][at]),
                        marked(number(errors[at]), errors[at] / record["results"][method(name)]),
                        number(block["rows"][at]["updates"], 1),
                        f"{short(block['values'][0])} … {short(block['values'][-1])}",
                    ]
                )
    singles = ", ".join(f"{n} alone {number(record['results'][n])}" for n in SINGLE)
    head = ["swept", "combiner", "best value", "MSE there", "updates a step", "range"]
    line = run_line(record, "T", "keys", "reading")
    return f"{line} {singles}; bold: below it.\n\n{markdown(head, rows)}"


def table1(record: Record, combiner: str) -> str:
    """Ours, the paper's, and their ratio in every cell."""
    rows = []
    for name, block in record["results"].items():
        cells = []
        for algorithm in ALGORITHMS:
            cell = block["cells"][algorithm]
            paper = cell["paper"]
            if algorithm in SINGLE:
                ours, text = cell["mse"], number(cell["mse"])
            else:
                own = cell["combiners"][combiner]
                ours = own["mse"]["mean"]
                spread = f" ± {own['mse']['sd']:.1g}" if own["mse"]["n"] > 1 else ""
                text = marked(number(ours) + spread, own["ratio"])
            cells.append(f"{text} / {number(paper)} = {ours / paper:.2f}")
        rows.append([title(name, block), *cells])
    return markdown(["set", *ALGORITHMS], rows)


def title(name: str, block: Record) -> str:
    return SETS[name].title + (" (STAND-IN)" if block["stand_in"] else "")


def table1_settings(record: Record) -> str:
    rows = []
    for name, block in record["results"].items():
        cells = block["cells"]
        multiples = [
            " ".join(
                f"{cells[algorithm]['combiners'][combiner]['multiple']:g}" for algorithm in BOOSTED
            )
            for combiner in TABLED
        ]
        own = [cells[single]["setting"] for single in SINGLE]
        rows.append([title(name, block), f"{block['T']}", f"{block['features']}", *own, *multiples])
    head = ["set", "T", "r", "SGD", "NM", f"σ_m²/MSE: {TABLED[0]}", *TABLED[1:]]
    data = record["settings"]["data"]
    line = run_line(record, "models", "m", "max_reuse", "dependence", "keys")
    return f"{line} Data: {data}.\n\n{markdown(head, rows)}"


def lemma1(record: Record) -> str:
    rows = [
        [
            name,
            str(row["learners"] or "none"),
            number(row["weight"]),
            number(row["share"]),
            short(row["largest_error"]),
            number(row["mse"]),
            number(row["proven_mse"]),
            number(row["desired_mse"]),
            row["reason"] or ("holds" if row["holds"] else "VIOLATED"),
        ]
        for name, row in record["results"]["lemma1"].items()
    ]
    head = [
        "stream",
        "M",
        "Σλ^(M+1)/T",
        "share e² > σ_m²",
        "max abs e",
        "MSE",
        "proven",
        "σ_d²",
        "",
    ]
    given = ", ".join(f"{k} = {v}" for k, v in record["settings"]["lemma1"].items())
    return f"{given}; {run_line(record)}\n\n{markdown(head, rows)}"


def lemma2(record: Record) -> str:
    block = record["results"]["lemma2"]
    rows = [
        [
            name,
            f"{row['guarantee']:g}",
            f"{row['target_mse']:g}",
            f"{row['kappa']:g}",
            f"{row['dependence']:g}",
            str(row["M"] or f"none up to {block['limit']}"),
            number(row["printed"], 1),
            number(row["corrected"], 1),
        ]
        for name, row in block["rows"].items()
    ]
    head = ["learners", "σ²", "σ_m²", "κ", "c", "M", "printed bound", "corrected bound"]
    return markdown(head, rows)


def theorem2(record: Record) -> str:
    rows = [
        [
            f"ζ² = {run['zeta2']:g}, σ_m² = {run['target_mse']:g}",
            number(run["gamma_over_zeta2"], 3),
            number(run["mean"][4]),
            number(run["bound"][4]),
            number(run["mean"][-1]),
            number(run["bound"][-1]),
            str(run["learners_with_a_bound"]),
            str(run["learners_with_printed_conditions"]),
            "holds" if run["holds"] else "VIOLATED",
        ]
        for run in record["results"]["theorem2"]["monte_carlo"]
    ]
    head = ["i.i.d. Gaussian errors", "γ/ζ²", "E[λ^(5)]", "bound", "E[λ^(20)]", "bound",
            "learners with a bound", "by the printed conditions", ""]  # fmt: skip
    return markdown(head, rows)


def regret(record: Record) -> str:
    rows = [
        [
            name,
            number(row["regret"][0], 2),
            number(row["regret"][-1], 2),
            number(row["slope"], 3),
            number(row["slope_first_half"], 3),
            number(row["slope_second_half"], 3),
            short(row["largest_error"]),
        ]
        for name, row in record["results"]["regret"].items()
    ]
    T = record["settings"]["T"]
    head = ["sequence", "R at 1,000", f"R at {T:,}", "slope in ln T", "first half", "second half",
            "max abs e"]  # fmt: skip
    rows2 = record["results"]["counterexample"]
    other = [
        [f"{T:,}", number(a, 0), number(b, 1)]
        for T, a, b in zip(rows2["T"], rows2["NM"], rows2["forward"], strict=True)
    ]
    bound = number(rows2["forward_bound"], 2)
    table = markdown(["T", "NM", f"forward (at most {bound})"], other)
    return f"{markdown(head, rows)}\n\nThe counterexample:\n\n{table}"


def costs(record: Record) -> str:
    rows = [
        [name, *(number(row[part], 1) for part in (
            "printed_updates", "corrected_updates", "made_updates", "printed_cost", "corrected_cost"
        ))]
        for name, row in record["results"]["costs"].items()
    ]  # fmt: skip
    head = ["Duffing, r = 3", "updates, printed", "with whole repeats", "made",
            "operations, printed", "with the estimates"]  # fmt: skip
    return markdown(head, rows)


def blocks(records: dict[str, Record]) -> dict[str, str]:
    """Every marked block of the pages by its name."""
    import accuracy_table
    import combiner_tables as more  # which are made of the pieces of this file
    import common
    import prediction_tables as users
    import soak
    import speed_table
    import tuning_table

    sources: dict[str, Callable[[], str]] = {
        "stationary": lambda: both_readings(records["stationary"], 5),
        "duffing": lambda: both_readings(records["duffing"]),
        "weights": lambda: weights(records["weights"]),
        "parameters": lambda: parameters(records["parameters"]),
        "table1 settings": lambda: table1_settings(records["table1"]),
        "table1 NSGD": lambda: table1(records["table1"], "NSGD 0.01"),
        "table1 uniform": lambda: table1(records["table1"], "uniform"),
        "table1 RLS": lambda: table1(records["table1"], "forward RLS"),
        "lemma 1": lambda: lemma1(records["theory"]),
        "lemma 2": lambda: lemma2(records["theory"]),
        "theorem 2": lambda: theorem2(records["theory"]),
        "regret": lambda: regret(records["theory"]),
        "costs": lambda: costs(records["theory"]),
        "claims": lambda: claims.table(records),
        "defects": lambda: defects.listing(records["theory"]["results"]),
        # Times are those of a quiet machine: of the record, whatever else is run again.
        "accuracy": lambda: accuracy_table.accuracy(common.load("accuracy")),
        "intervals": lambda: users.intervals(common.load("intervals")),
        "changes": lambda: users.changes(common.load("intervals")),
        "delays": lambda: users.delays(common.load("prediction")),
        "targets": lambda: users.targets(common.load("prediction")),
        "outliers": lambda: users.outliers(common.load("prediction")),
        "soak": lambda: soak.table(common.load("soak")["results"]),
        "speed": lambda: speed_table.speed(common.load("speed")),
        "tuning": lambda: tuning_table.verdicts(common.load("tuning")),
        "self-tuning": lambda: tuning_table.self_tuning(common.load("tuning")),
        "combiners errors": lambda: more.errors(records["combiners"]),
        "combiners regrets": lambda: more.regrets(records["combiners"]),
        "related work": lambda: more.related(records["baselines"]),
        "nonlinear": lambda: more.requirements(records["nonlinear"]),
        "networks": lambda: more.networks(records["nonlinear"]),
    }
    return {name: make() for name, make in sources.items()}
