"""The tables of the benchmarks, from their JSON alone."""

from __future__ import annotations

from collections.abc import Callable

from experiments.bench import soak
from experiments.shared.markdown import Record, marked, number, run_line, short, table


def accuracy(record: Record) -> str:
    """auto beside the best of river on every set, scaled input; times of the same run."""
    results = record["results"]
    rows = []
    for role in ("chosen on", "held out"):
        for name, row in results["summary"][role]["sets"].items():
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
    return table(head, rows)


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
    return table(["", *head], rows)


def combiner_errors(record: Record) -> str:
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
    return f"{line}\n\n{table(['', 'mean of the real', 'largest', *names], rows)}"


def ratio(block: Record, mse: float) -> str:
    over = mse / block["hindsight"]["best expert"]
    return marked(f"{over:.3g}" if over >= 10 else f"{over:.3f}", over)


def combiner_regrets(record: Record) -> str:
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
    return table(head, rows)


def related_work(record: Record) -> str:
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
    return f"{line} {note}\n\n{table(head, rows)}"


def requirements(record: Record) -> str:
    """What the non-linear parts were to reach, and what they do."""
    rows = [
        [line["what"].replace("|", "\\|"), f"{line['sign']} {line['wanted']:g}", short(line["got"]),
         "yes" if line["holds"] else "NO"]
        for line in record["results"]["requirements"]
    ]  # fmt: skip
    line = run_line(record, "rows", "keys", "m", "data")
    return f"{line}\n\n{table(['', 'wanted', 'got', 'holds'], rows)}"


def networks(record: Record) -> str:
    """A perceptron under Gauss–Newton, random features and a line under Newton, on raw rows."""
    rows = [
        [name, f"{number(row['mean'])} ± {row['sd']:.4f}", number(row["features"]),
         number(row["line"]), f"{row['us']:.0f}"]
        for name, row in record["results"]["networks"].items()
        if "line" in row
    ]  # fmt: skip
    head = ["", "perceptron, 150 parameters", "300 random features", "line", "perceptron, µs"]
    return table(head, rows)


def intervals(record: Record) -> str:
    """Coverage in all, in the worst 2,000, after a change; widths over the constant control's."""
    head = ["", "Newton", "worst", "after", "width", "BNM-WU", "worst", "after", "width",
            "jackknife", "width", "Bayes", "width"]  # fmt: skip
    rows = []
    for stream, found in record["results"]["intervals"].items():
        cells = [stream]
        for model in ("Newton", "BNM-WU"):
            band = found.get(model, {}).get("conformal", {})
            cells += [number(band.get(key), 1) for key in ("coverage", "worst", "after")]
            cells.append(number(band.get("width"), 2))
        for peer in ("river's jackknife", "river's Bayes"):
            band = found["Newton"].get(peer, {})
            cells += [number(band.get("coverage"), 1), number(band.get("width"), 2)]
        rows.append(cells)
    return table(head, rows)


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
    counts = ", ".join(f"{name} {rate:.0f}" for name, rate in alarms.items() if rate)
    without = sum(not rate for rate in alarms.values())
    return (
        f"{table(head, rows)}\n\n"
        f"Where nothing changes ({len(calm)} streams and models) the MSE is at most {cost:.3f} "
        f"times that without OnChange ({where}). False alarms in 10⁵ samples: none in {without} "
        f"cases of {len(alarms)}; {counts}."
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
    return table(["", *(f"{delay} late" for delay in delayed)], rows)


def targets(record: Record) -> str:
    """Eight targets at once, in times of one."""
    rows = [
        [name, number(found["times one run"], 1), f"{found['difference']:.0e}"]
        for name, found in record["results"]["targets"].items()
    ]
    return table(["", "time of 8 targets / of one", "largest difference"], rows)


def outliers(record: Record) -> str:
    """Errors on the clean samples, over those of the same model on the clean stream."""
    forms = ("plain", "weight", "target", "no outliers")
    rows = [
        [name, *(f"{found[form]:.4g}" for form in forms)]
        for name, found in record["results"]["outliers"].items()
    ]
    head = [
        "",
        "no Huber",
        'Huber, acts_on="weight"',
        'acts_on="target"',
        "Huber on the clean stream",
    ]
    return table(head, rows)


def tuning_requirements(record: Record) -> str:
    """What must hold, and what was found."""
    rows = [
        [row["wanted"], row["got"], "yes" if row["holds"] else "**no**"]
        for row in record["results"]["verdicts"]
    ]
    return table(["wanted", "found", "holds"], rows)


def self_tuning(record: Record) -> str:
    """Errors in percent above the best fixed step's, by stream, model and start."""
    rows = []
    for stream, found in record["results"]["self-tuning"].items():
        for name in ("SGD", "BSGD-WU", "BSGD-WU, around"):
            errors = found[name]
            row = [stream, name, f"{errors['best step']:.3g}", f"{errors['mse']:.4g}"]
            for start in ("0.1 ×", "10 ×"):
                row += [
                    f"{100 * (errors[start][how] - 1):+.1f}" for how in ("fixed", "self-tuning")
                ]
            rows.append(row)
    head = ["stream", "model", "best step", "its MSE"]
    starts = [text for size in ("step / 10", "step × 10") for text in (size, "self-tuning")]
    return table([*head, *starts], rows)


def blocks(record: Callable[[str], Record]) -> dict[str, str]:
    """Every marked table of the benchmarks by its name; ``record`` loads a script's JSON."""
    combiners, nonlinear, tuning = record("combiners"), record("nonlinear"), record("tuning")
    prediction = record("prediction")
    return {
        "accuracy": accuracy(record("accuracy")),
        "speed": speed(record("speed")),
        "combiners errors": combiner_errors(combiners),
        "combiners regrets": combiner_regrets(combiners),
        "related work": related_work(record("baselines")),
        "nonlinear": requirements(nonlinear),
        "networks": networks(nonlinear),
        "intervals": intervals(record("intervals")),
        "changes": changes(record("intervals")),
        "delays": delays(prediction),
        "targets": targets(prediction),
        "outliers": outliers(prediction),
        "soak": soak.table(record("soak")["results"]),
        "tuning": tuning_requirements(tuning),
        "self-tuning": self_tuning(tuning),
    }
