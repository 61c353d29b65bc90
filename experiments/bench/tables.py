"""The tables of the benchmarks, from their JSON alone."""

from __future__ import annotations

from collections.abc import Callable

from experiments.bench import (
    accuracy_limits,
    auto_streams,
    first_command,
    keys_report,
    knowing_report,
    serve_report,
    soak,
    tree_weights,
)
from experiments.shared.markdown import Record, marked, number, run_line, short, table

WIDTHS = (3, 21, 90)
MODELS = ("BSGD-WU", "BSGD-DR", "BSGD-RU", "BNM-WU", "BNM-DR", "BNM-RU")
PEER = "river, 20 bagged linear"


COMBINERS = {"Newton": "default", "NSGD": "light"}


def speed(record: Record) -> str:
    """Microseconds a sample, the ratio to the faster loop in C, and the error; m = 20."""
    rows = _speed_rows(record)

    def cells(name: str, combiner: str) -> list[str]:
        out = []
        for r in WIDTHS:
            forms = rows.get((r, name, combiner), {})
            ours = forms.get("jboost") or forms.get("peer")
            out.append("–" if ours is None else f"{ours['microseconds']:.3g}")
            out.append(_over_c(forms, "jboost"))
            out.append(number(None if "jboost" not in forms else forms["jboost"]["mse"]))
        return out

    shown = [[name, *cells(name, "Newton")] for name in MODELS]
    for name in dict.fromkeys(name for _, name, _ in rows if name.startswith("BNM-RU,")):
        label = name.replace(", ", ", σ_m² chosen for ")
        shown.append([label, *cells(name, "Newton")])
    shown += [[f"{name}, light combiner", *cells(name, "NSGD")] for name in ("BSGD-WU", "BNM-WU")]
    shown.append([PEER, *cells(PEER, "")])
    head = [text for r in WIDTHS for text in (f"r = {r}, µs", "× C", "MSE")]
    return table(["", *head], shown)


def speed_rows(record: Record) -> str:
    """Every model in every form, with both loops in C, and the peers."""
    shown = []
    for (r, name, combiner), forms in _speed_rows(record).items():
        times = {how: row["microseconds"] for how, row in forms.items()}
        c = [times.get(f"C, {layout}") for layout in ("together", "side by side")]
        least = min((spent for spent in c if spent), default=0.0)
        shown.append([
            name, str(r), COMBINERS.get(combiner, "–"),
            *(f"**{short(spent)}**" if spent == least else short(spent) for spent in c),
            short(times.get("jboost", times.get("peer"))), _over_c(forms, "jboost"),
            short(times.get("P form")), _over_c(forms, "P form"),
            number(next(iter(forms.values()))["mse"]),
        ])  # fmt: skip
    head = ["", "r", "combiner", "C together", "C side by side", "µs", "× C", "P form, µs", "× C"]
    line = run_line(record, "m", "max_reuse", "target_mse", "forgetting", "ridge", "step_size")
    return f"{line}\n\n{table([*head, 'MSE'], shown)}"


def first_results(record: Record) -> str:
    """What the first result costs in a fresh process."""
    shown = [
        [name, *(number(cost[key], 2) for key in ("run_seconds", "over_import_jax_seconds")),
         str(int(cost["compiled_by_second_length"]))]
        for name, cost in record["results"].get("first", {}).items()
    ]  # fmt: skip
    head = ["", "`jb.run`, CPU s", "in all less `import jax`", "programs for a second length"]
    return table(head, shown)


def single_calls(record: Record) -> str:
    """CPU microseconds of single calls, beside a step of a run."""
    rows = [
        [name, *(f"{cost[what]:.3g}" for what in ("step", "pair", "call of no rows", "longest"))]
        for name, cost in record["results"].get("singles", {}).items()
    ]
    head = ["", "step of a run", "pair of calls", "call of no rows", "longest pair / median"]
    return table(head, rows)


def storages(record: Record) -> str:
    """Microseconds of least squares on the whole of P and on one triangle of it."""
    rows = [
        [f"r = {r}", f"{times['whole']:.3g}", f"{times['triangle']:.3g}"]
        for r, times in record["results"].get("storages", {}).items()
    ]
    return table(["", "the whole of P", "one triangle of P"], rows)


def speed_requirements(record: Record) -> str:
    """What must hold, what is aimed at, and what was measured."""
    shown = [
        [need["what"], f"{need['sign']} {need['wanted']:g}", short(need["measured"]),
         need["verdict"]]
        for need in record["results"]["requirements"]
    ]  # fmt: skip
    return table(["", "limit or aim", "measured", ""], shown)


def _speed_rows(record: Record) -> dict[tuple[int, str, str], dict[str, Record]]:
    """The timings by number of columns, name and combiner, then by form."""
    found: dict[tuple[int, str, str], dict[str, Record]] = {}
    for row in record["results"]["rows"]:
        found.setdefault((row["r"], row["name"], row["combiner"]), {})[row["how"]] = row
    return found


def _over_c(forms: dict[str, Record], how: str) -> str:
    """The time of a form over that of the faster loop in C; a dash where one is missing."""
    c = [row["microseconds"] for other, row in forms.items() if other.startswith("C,")]
    return f"{forms[how]['microseconds'] / min(c):.2f}" if c and how in forms else "–"


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


def forecasts(record: Record) -> str:
    """MASE of each set and model: the mean over horizons, the first and the last horizon."""
    sets = record["results"]["sets"]
    names = list(dict.fromkeys(name for found in sets.values() for name in found))
    rows = []
    for name in names:
        cells = []
        for found in sets.values():
            mase = found.get(name, {}).get("mase")
            ends = [] if mase is None else [sum(mase) / len(mase), mase[0], mase[-1]]
            cells.append(" / ".join(f"{value:.3f}" for value in ends) or "–")
        rows.append([name, *cells])
    return table(["", *sets], rows)


def later_forecasts(record: Record) -> str:
    """Forecasts of rows on which nothing was chosen, beside the best naive ones."""
    found = {name: row for name, row in record["results"]["later"].items() if row is not None}
    rows = [
        ["Forecast", *(f"{row['mase']:.3f}" for row in found.values())],
        ["best naive", *(f"{row['naive']:.3f} ({row['best naive']})" for row in found.values())],
        ["coverage", *("{:.1%} – {:.1%}".format(*row["coverage"]) for row in found.values())],
    ]
    return table(["mean MASE", *found], rows)


def forecast_limits(record: Record) -> str:
    """What must hold of forecasts, beside what was measured, by set."""
    sets, verdicts = record["results"]["sets"], record["results"]["verdicts"]
    naive = "horizons below the better of the daily and the weekly naive forecast"
    rows = [
        [naive, *("{} of {}".format(*verdicts[naive][name]) for name in sets)],
        ["MASE over the better of river's", *(f"{verdicts[RIVER][name]:.2f}" for name in sets)],
        ["MASE over LightGBM's", *(_over(found, LIGHTGBM, "mase") for found in sets.values())],
        ["time over LightGBM's", *(_over(found, LIGHTGBM, "seconds") for found in sets.values())],
        ["the same with the compiler", *(_over(f, LIGHTGBM, "seconds", 1) for f in sets.values())],
        ["µs a row", *(f"{found['Forecast']['microseconds']:.0f}" for found in sets.values())],
        [
            "coverage of 90 % intervals, least and most of any horizon",
            *("{:.1%} – {:.1%}".format(*verdicts["coverage"][name]) for name in sets),
        ],
    ]
    mean = verdicts["geometric mean of the MASE over LightGBM's"]
    return (
        table(["", *sets], rows)
        + f"\n\nThe geometric mean of the ratios to LightGBM is {mean:.3f}."
    )


def next_answers(record: Record) -> str:
    """The errors of both models of the next answer, over those of the last value, by set."""
    sets = record["results"]["sets"]
    rows = [
        [
            f"{name}, {what.upper()}",
            *(f"{f[name][what] / f[LAST][what]:.3f}" for f in sets.values()),
        ]
        for what in ("mae", "mse")
        for name in ("Forecast", "auto")
    ]
    return table(["over the last value", *sets], rows)


def forecast_shapes(record: Record) -> str:
    """The errors of forecasts of made streams, over those of the naive forecasts."""

    def over(found: Record, naive: str) -> str:
        mine, theirs = found["Forecast"], found[naive]
        return f"{mine / theirs:.2f}" if theirs > 1e-9 * mine else "both 0" if mine == 0 else "> 99"

    shapes = record["results"]["shapes"]
    rows = [
        [name, str(found["season"]), over(found, LAST), over(found, "a season ago")]
        for name, found in shapes.items()
    ]
    return table(["answers", "season", "over the last value", "over a season ago"], rows)


LAST = "last value"
LIGHTGBM, RIVER = "skforecast LightGBM", "MASE over river's"


def _over(found: Record, peer: str, what: str, compiler: int = 0) -> str:
    """Our figure over a peer's; a dash where the peer has none."""
    if peer not in found:
        return "–"
    mine = found["Forecast"]
    if what == "mase":
        return f"{sum(mine['mase']) / sum(found[peer]['mase']):.3f}"
    return f"{(mine['seconds'] + compiler * mine['compile_seconds']) / found[peer]['seconds']:.3f}"


def blocks(record: Callable[[str], Record]) -> dict[str, str]:
    """Every marked table of the benchmarks by its name; ``record`` loads a script's JSON."""
    combiners, nonlinear, tuning = record("combiners"), record("nonlinear"), record("tuning")
    prediction = record("prediction")
    return {
        **accuracy_limits.blocks(record("accuracy"), record("peers")),
        "auto, kinds": auto_streams.kinds_table(record("auto_streams")),
        "auto, promises": auto_streams.promises_table(record("auto_streams")),
        "auto, changes": auto_streams.changes_table(record("auto_streams")),
        "speed": speed(record("speed")),
        "speed rows": speed_rows(record("speed")),
        "first results": first_results(record("speed")),
        "first command": first_command.shown(record("first_command")),
        "single calls": single_calls(record("speed")),
        "storages": storages(record("speed")),
        "speed requirements": speed_requirements(record("speed")),
        "combiners errors": combiner_errors(combiners),
        "combiners regrets": combiner_regrets(combiners),
        "related work": related_work(record("baselines")),
        "nonlinear": requirements(nonlinear),
        "networks": networks(nonlinear),
        **knowing_report.blocks(record),
        "tree weights": tree_weights.table(record("tree_weights")),
        "intervals": intervals(record("intervals")),
        "changes": changes(record("intervals")),
        "delays": delays(prediction),
        "targets": targets(prediction),
        "outliers": outliers(prediction),
        "serving": serve_report.serving(record("serve_load"), record("serve_faults")),
        "soak": soak.table(record("soak")["results"]),
        "keys": keys_report.table(record("keys"), record("keys_numbered")),
        "keys, kills": keys_report.kills(record("kill_keys"), record("kill_workers")),
        "keys, plan": keys_report.plan(record("keys")),
        "forecasts": forecasts(record("forecast")),
        "forecasts of later rows": later_forecasts(record("forecast")),
        "forecast limits": forecast_limits(record("forecast")),
        "forecast shapes": forecast_shapes(record("forecast_shapes")),
        "next answers": next_answers(record("forecast_next")),
        "tuning": tuning_requirements(tuning),
        "self-tuning": self_tuning(tuning),
    }
