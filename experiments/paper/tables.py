"""The tables of the paper's page, from the JSON of its scripts alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from experiments.paper import claims, defects, report
from experiments.paper import tables_further as further
from experiments.paper.ledger import LETTERS, SCRIPTS
from experiments.paper.protocol import (
    ALGORITHMS,
    BOOSTED,
    COMBINERS,
    DRAWN,
    SINGLE,
    TABLED,
    method,
    tabled,
)
from experiments.shared.markdown import Record, marked, number, run_line, short, table
from jboost.paper.datasets import FURTHER, SETS


def comparison(record: Record, reading: str, digits: int) -> str:
    """The errors of the six boosted models under every combiner, for one reading."""
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
    head = ["", *COMBINERS, "mean λ", "updates a step"]
    return f"{singles}; bold: below the single learner.\n\n{table(head, rows)}"


def both_readings(record: Record, digits: int = 4) -> str:
    """The table of :func:`comparison` for the literal and for the safe models."""
    line = run_line(record, "T", "trials", "keys", "m", "step_size", "forgetting", "ridge",
                    "target_sgd", "target_nm")  # fmt: skip
    line += f" {100 * record['results']['outside']:.0f} % of the targets lie outside [−1, 1]."
    return "\n\n".join(
        [
            line,
            "Literal reading: " + comparison(record, "literal", digits),
            "Safe models: " + comparison(record, "safe", digits),
        ]
    )


def weights(record: Record) -> str:
    """The mean λ of some learners, and what each model does and takes at a step."""
    results = record["results"]
    means = results["mean"]
    mean = ", ".join(f"{k}: {means[k - 1]:.3f}" for k in (1, 2, 5, 10, 20))
    rows = [
        [f"{stream}: {name}", number(row["updates"], 2), number(row["microseconds"], 2)]
        for stream, block in results["work"].items()
        for name, row in block.items()
    ]
    head = ["safe models, float32", "updates a step", "µs a step"]
    line = run_line(record, "T", "keys")
    return f"{line}\n\nMean λ of learner {mean}.\n\n{table(head, rows)}"


def parameters(record: Record) -> str:
    """The best value of each swept parameter under each combiner."""
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
    return f"{line} {singles}; bold: below it.\n\n{table(head, rows)}"


def table1(record: Record, combiner: str) -> str:
    """Our error, the paper's, and their ratio, for every set and algorithm under one combiner."""
    rows = []
    for name in (name for name in SETS if name in record["results"]):  # a quick run has few
        block, cells = record["results"][name], []
        for algorithm in ALGORITHMS:
            cell = block["cells"][algorithm]
            paper = cell["paper"]
            if algorithm in SINGLE:
                ours, text = cell["mse"], number(cell["mse"])
            else:
                mixed = cell["combiners"][combiner]
                ours = mixed["mse"]["mean"]
                spread = f" ± {mixed['mse']['sd']:.1g}" if mixed["mse"]["n"] > 1 else ""
                text = marked(number(ours) + spread, mixed["ratio"])
            cells.append(f"{text} / {number(paper)} = {ours / paper:.2f}")
        rows.append([title(name, block), *cells])
    return table(["set", *ALGORITHMS], rows)


def title(name: str, block: Record) -> str:
    """The name of a data set, marked where its data are a stand-in."""
    return {**SETS, **FURTHER}[name].title + (" (STAND-IN)" if block["stand_in"] else "")


def table1_settings(record: Record) -> str:
    """The settings that were best on each set."""
    rows = []
    for name, block in record["results"].items():
        cells = block["cells"]
        multiples = [
            " ".join(multiple(cells[algorithm]["combiners"][combiner]) for algorithm in BOOSTED)
            for combiner in TABLED
        ]
        best = [setting(cells[single]) for single in SINGLE]
        rows.append(
            [title(name, block), f"{block['T']}", f"{block['features']}", *best, *multiples]
        )
    head = ["set", "T", "r", "SGD", "NM", f"σ_m²/MSE: {TABLED[0]}", *TABLED[1:]]
    data = record["settings"]["data"]
    line = run_line(record, "models", "m", "max_reuse", "dependence", "keys")
    return f"{line} Data: {data}.\n\n{table(head, rows)}"


def table1_words(record: Record) -> str:
    """How near our SGD comes to the paper's, and which ridges are best for NM."""
    sets = tabled(record["results"])
    errors = {name: block["cells"]["SGD"] for name, block in sets.items()}
    near = [n for n, cell in errors.items() if abs(cell["mse"] / cell["paper"] - 1) < 0.02]
    far = [n for n, cell in errors.items() if not 0.5 < cell["mse"] / cell["paper"] < 2]
    ridges = [float(block["cells"]["NM"]["setting"].split("v ")[1]) for block in sets.values()]
    return (
        f"Our SGD is within 2 % of the paper's on {', '.join(SETS[n].title for n in near)}. It is "
        f"not within a factor of 2 on {', '.join(SETS[n].title for n in far)}: do not compare "
        f"these rows. The best v is {min(ridges):g} to {max(ridges):g}, not v ≪ 1 as printed."
    )


def multiple(cell: Record) -> str:
    """The best σ_m² over the single learner's MSE; 0 and ∞ are the bounds of its range."""
    return "∞" if cell["where"].endswith("∞") else f"{cell['multiple']:g}"


def setting(cell: Record) -> str:
    """The best settings of a single learner, with a warning where they are at a grid's edge."""
    outside = [name for name, place in cell["where"].items() if place.startswith("edge")]
    return cell["setting"] + (f" ({', '.join(outside)} AT THE EDGE)" if outside else "")


def lemma1(record: Record) -> str:
    """What Lemma 1 promises and what was measured, for each stream."""
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
    shown = ", ".join(f"{k} = {v}" for k, v in record["settings"]["lemma1"].items())
    return f"{shown}; {run_line(record)}\n\n{table(head, rows)}"


def lemma2(record: Record) -> str:
    """The M that learners with a guarantee reach, beside the bounds on M."""
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
    return table(head, rows)


def theorem2(record: Record) -> str:
    """Mean weights on independent Gaussian errors, beside the bounds of Theorem 2."""
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
    return table(head, rows)


def regret(record: Record) -> str:
    """How the regret of NM grows on each sequence, and on the counterexample."""
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
    second = table(["T", "NM", f"forward (at most {bound})"], other)
    return f"{table(head, rows)}\n\nThe counterexample:\n\n{second}"


def costs(record: Record) -> str:
    """Updates and operations at a step: printed, corrected and made."""
    rows = [
        [model, *(number(row[name], 1) for name in (
            "printed_updates", "corrected_updates", "made_updates", "printed_cost", "corrected_cost"
        ))]
        for model, row in record["results"]["costs"].items()
    ]  # fmt: skip
    head = ["Duffing, r = 3", "updates, printed", "with whole repeats", "made",
            "operations, printed", "with the estimates"]  # fmt: skip
    return table(head, rows)


def blocks(record: Callable[[str], Record]) -> dict[str, str]:
    """Every marked table of the paper's page by its name; ``record`` loads a script's JSON."""
    records = {}
    for name in SCRIPTS:
        with suppress(FileNotFoundError):  # a script without a record is named as such
            records[name] = record(name)
    theory = records["theory"]
    return {
        "stationary": both_readings(records["stationary"], 5),
        "duffing": both_readings(records["duffing"]),
        "weights": weights(records["weights"]),
        "parameters": parameters(records["parameters"]),
        "table1 words": table1_words(records["table1"]),
        "table1 settings": table1_settings(records["table1"]),
        "table1 literal settings": table1_settings(records["table1_literal"]),
        "table1 ratios": further.ratios(records["table1"]),
        "table1 literal ratios": further.ratios(records["table1_literal"]),
        "table1 uniform": table1(records["table1"], "uniform"),
        "table1 RLS": table1(records["table1"], "forward RLS"),
        "lemma 1": lemma1(theory),
        "lemma 2": lemma2(theory),
        "theorem 2": theorem2(theory),
        "regret": regret(theory),
        "costs": costs(theory),
        "text": further.readings(records["text_claims"]),
        "trees": further.trees(records.get("trees")),
        "tree family": further.family(records["tree_family"]),
        "claims": claims.table(records),
        "report": report.text(records),
        "defects": defects.listing(theory["results"]),
    }
