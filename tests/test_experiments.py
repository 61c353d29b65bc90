"""The experiments: their command lines at a tiny size, and their pages against the JSON."""

import copy
import importlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import jboost as jb
from experiments.bench import first_command, speed_cases, speed_native, speed_report, tables
from experiments.paper import claims, protocol
from experiments.paper import tables as paper_tables
from experiments.shared import pages
from experiments.shared.experiment import Experiment

FOLDER = Path(__file__).parent.parent / "experiments"
PAPER = (
    *("stationary", "duffing", "weights", "parameters", "table1", "table1_literal", "theory"),
    *("text_claims", "trees", "tree_family", "all"),
)
BENCH = (
    *("accuracy", "accuracy_peers", "auto_streams", "auto_times", "baselines", "combiners"),
    *("explanations", "filters", "first_command", "flags", "fleets", "forecast"),
    "forecast_next",
    *("forecast_shapes", "intervals", "keys", "keys_numbered"),
    *("kill", "kill_workers", "losses", "nonlinear"),
    *("prediction", "real_streams", "serve_faults", "serve_load", "soak", "speed", "sweeps"),
    *("tree_weights", "tuning"),
)
SCRIPTS = (*(f"paper/{name}.py" for name in PAPER), *(f"bench/{name}.py" for name in BENCH))
DRAWN = [path.relative_to(FOLDER) for path in sorted(FOLDER.glob("*/results/*.png"))]


@pytest.fixture(autouse=True)
def precision():
    """Puts float64 back as it was, which the scripts of the paper turn on."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def module(script):
    return importlib.import_module(f"experiments.{script.removesuffix('.py').replace('/', '.')}")


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_has_the_same_three_options(script, capsys):
    with pytest.raises(SystemExit) as end:
        module(script).main(["--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0
    assert all(option in shown for option in ("--quick", "--out", "--record"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--length", "3"], "at least 100"),
        (["--quick", "--record"], "--record is for full runs"),
        (["--out", "somewhere", "--record"], "not allowed with"),
    ],
)
def test_a_script_refuses_nonsense(arguments, reason, capsys):
    with pytest.raises(SystemExit) as end:
        module("paper/weights.py").main(arguments)
    assert end.value.code == 2 and reason in capsys.readouterr().err


def files_of(folder):
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if "__pycache__" not in str(path)
    }


def test_a_script_runs_from_the_command_line_without_the_data(tmp_path, monkeypatch):
    """It uses stand-ins for the data sets, says so everywhere, and leaves the checkout alone.

    Bank8FM is not in Table 1. It is run where its file is in the cache folder, as here.
    """
    x, y = jb.datasets.stand_in("bank8fm", 200)
    (tmp_path / "jboost").mkdir()
    np.savez(tmp_path / "jboost" / "bank8fm.npz", x=x, y=y)
    monkeypatch.delenv("JBOOST_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))  # this jboost, not an installed one
    before = files_of(FOLDER)
    command = [sys.executable, "experiments/paper/table1.py", "--quick", "--length", "120"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=FOLDER.parent)
    assert files_of(FOLDER) == before
    assert "STAND-IN" in done.stderr and "table1: 100%, 3 of 3 steps" in done.stderr
    out = tmp_path / "jboost-experiments"
    assert f"results in {out / 'table1.json'}" in done.stdout
    record = json.loads((out / "table1.json").read_text(encoding="utf-8"))
    assert record["quick"] and "STAND-IN" in record["settings"]["data"]
    blocks = record["results"]
    assert {name for name, block in blocks.items() if not block["stand_in"]} == {"bank8fm"}
    assert blocks["bank8fm"]["T"] == 120 and blocks["bank8fm"]["cells"]["SGD"]["paper"] is None
    assert all(name in blocks["bank8fm"]["cells"] for name in protocol.ALGORITHMS)
    assert set(record["versions"]) >= {"jax", "jboost", "numpy"}
    assert 1000 < (out / "table1.png").stat().st_size < 200_000


def test_record_writes_beside_the_script_and_fills_the_pages(tmp_path, monkeypatch):
    script = tmp_path / "bench" / "table1.py"
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin: made -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(pages, "PAGES", (page,))
    monkeypatch.setattr(pages, "blocks", lambda folder: {"made": "| new |"})
    experiment = Experiment(str(script), "A script.", ["--record"], double=False)
    experiment.write({}, {"mse": 1 / 3})
    record = json.loads((script.parent / "results" / "table1.json").read_text(encoding="utf-8"))
    assert record["results"] == {"mse": 0.33333} and not record["quick"]
    assert page.read_text() == "before\n<!-- begin: made -->\n| new |\n<!-- end -->\nafter\n"


def test_a_combiner_run_on_the_estimates_is_the_combiner_inside():
    xs, ds = (np.asarray(a)[None] for a in jb.streams.duffing(400))
    inside = jb.Newton(0.999, ridge=1.0)
    chain = protocol.chains(
        protocol.boosted("BNM-DR", protocol.DUFFING, literal=False),
        xs,
        ds,
        jax.random.split(jax.random.key(0), 1),
    )
    outside = protocol.combine(inside, chain.y, ds)[0]
    model = jb.bnm_dr(target_mse=0.17, forgetting=0.999, ridge=0.01, combiner=inside)
    np.testing.assert_allclose(outside, jb.run(model, xs[0], ds[0])[1].prediction, atol=2e-4)


def test_the_first_learners_of_a_chain_are_a_chain():
    xs, ds = (np.asarray(a)[None] for a in jb.streams.duffing(300))
    keys = jax.random.split(jax.random.key(0), 1)
    many, few = (
        protocol.chains(
            protocol.boosted("BSGD-RU", replace(protocol.DUFFING, m=m), literal=False), xs, ds, keys
        )
        for m in (6, 4)
    )
    np.testing.assert_allclose(many.y[..., :4], few.y, atol=1e-5)


def text_of(page):
    return page.read_text(encoding="utf-8")


def test_the_pages_have_the_tables_of_the_json():
    """Text and figures cannot drift apart."""
    tables = pages.blocks()
    for page in pages.PAGES:
        assert pages.filled(text_of(page), tables) == text_of(page)
    shown = [found[1] for page in pages.PAGES for found in pages.BLOCK.findall(text_of(page))]
    assert sorted(shown) == sorted(tables)


@pytest.mark.parametrize("figure", DRAWN, ids=str)
def test_figures_are_small_and_some_page_shows_them(figure):
    assert (FOLDER / figure).stat().st_size < 200_000
    everything = [FOLDER.parent / "README.md", *FOLDER.rglob("*.md")]
    links = [
        (page.parent / link).resolve()
        for page in everything
        for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text_of(page))
    ]
    assert (FOLDER / figure).resolve() in links


@pytest.mark.parametrize("folder", ["paper", "bench", "guides"])
def test_each_folder_has_a_page_that_lists_its_files(folder):
    page = FOLDER / folder / "README.md"
    listed = text_of(page)
    files = [path.name for path in (FOLDER / folder).iterdir() if path.is_file()]
    missing = [n for n in files if n not in (page.name, "experiments.py") and n not in listed]
    records = [path.name for path in (FOLDER / folder).glob("results/*.json")]
    assert not missing and all(f"results/{name}" in listed for name in records)
    assert all(path.stat().st_size < 200_000 for path in (FOLDER / folder).glob("results/*"))


def test_the_tests_that_a_page_names_exist():
    tests = {path.name for path in Path(__file__).parent.rglob("test_*.py")}
    named = set(re.findall(r"`(test_\w+\.py)`", text_of(FOLDER / "bench" / "trust.md")))
    assert len(named) >= 10 and named <= tests


def test_every_public_name_is_on_the_page_of_names():
    named = set(re.findall(r"`(\w+)", text_of(FOLDER / "guides" / "api.md")))
    assert set(jb.__all__) - named == set()


@pytest.mark.parametrize("page", sorted(FOLDER.rglob("*.md")), ids=lambda page: page.name)
def test_links_of_the_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", text_of(page))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def recorded():
    """The records of the paper's scripts; trees.py may lack one, and then its claims say so."""
    found = [
        n for n in PAPER[:-1] if n != "trees" or (FOLDER / "paper/results/trees.json").exists()
    ]
    return {name: pages.load(name) for name in found}


def test_what_must_hold_in_the_record():
    """The outcomes that the reproduction stands on, from the JSON of record."""
    records = recorded()
    assert not any(record["quick"] for record in records.values())
    duffing = records["duffing"]["results"]["literal"]
    assert duffing["SGD"]["mse"]["mean"] == pytest.approx(0.2217, abs=1e-4)
    assert duffing["NM"]["mse"]["mean"] == pytest.approx(0.2105, abs=1e-4)
    boosted = {name: duffing[name]["combiners"]["RLS"] for name in protocol.BOOSTED}
    assert all(cell["ratio"] < 1 for cell in boosted.values())
    assert (
        min(boosted[n]["mse"]["mean"] for n in protocol.BOOSTED[:3])
        == boosted["BSGD-DR"]["mse"]["mean"]
    )
    assert boosted["BSGD-RU"]["mse"]["n"] >= 5

    sets = records["table1"]["results"]
    assert tuple(sets) == jb.datasets.names() and not any(s["stand_in"] for s in sets.values())
    for name in ("kin8nm", "compactiv", "protein"):
        cell = sets[name]["cells"]["SGD"]
        assert cell["mse"] == pytest.approx(cell["paper"], rel=0.02)
    for script in ("table1", "table1_literal"):
        for block in records[script]["results"].values():
            places = [p for n in protocol.SINGLE for p in block["cells"][n]["where"].values()]
            assert {*places} <= {"inside", "β = 1"}
    for block in sets.values():
        for name in protocol.BOOSTED:
            for cell in block["cells"][name]["combiners"].values():
                assert np.isfinite(cell["mse"]["mean"]) and cell["mse"]["n"] == (
                    5 if "RU" in name else 1
                )

    text = records["text_claims"]["results"]
    assert (
        max(text[f"after, {name}"]["largest_difference"] for name in ("BSGD-WU", "BNM-WU")) < 1e-9
    )
    family = records["tree_family"]["results"]
    assert all(block["regret"]["holds"] for block in family.values())

    theory = records["theory"]["results"]
    applies = [row for row in theory["lemma1"].values() if row["applies"]]
    assert len(applies) >= 3 and all(row["holds"] for row in applies)
    assert all(run["holds"] for run in theory["theorem2"]["monte_carlo"])
    for row in theory["regret"].values():
        assert row["times"][0] == 1_000 and row["times"][-1] == 1_000_000
        assert row["slope_second_half"] < 1.5 * row["slope_first_half"] + 0.05


def test_claims_are_many_and_have_a_verdict():
    done = claims.answers(recorded())
    assert len(done) >= 15
    assert {answer[0] for _, answer in done} <= {
        "true",
        "false",
        "in part",
        "not shown",
        "not measured",
    }


def test_a_record_with_bank8fm_fills_every_table_and_changes_no_claim():
    """Its block is that of another set with as many columns, without figures of the paper."""
    records = recorded()
    before = claims.answers(records)
    for script in ("table1", "table1_literal"):
        block = copy.deepcopy(records[script]["results"]["kin8nm"])
        for cell in block["cells"].values():
            cell["paper"] = None
        records[script]["results"]["bank8fm"] = block
    filled = paper_tables.blocks(records.__getitem__)
    assert claims.answers(records) == before
    for name in ("table1 settings", "table1 ratios", "table1 literal ratios"):
        assert "| Bank8FM |" in filled[name]
    assert "Bank8FM" not in filled["table1 uniform"]


def test_every_optimum_of_table_1_lies_inside_the_grid_that_is_recorded():
    """By the errors in the record, not by what the script said of them."""
    for script in ("table1", "table1_literal"):
        record = pages.load(script)
        settings = record["settings"]
        for block in record["results"].values():
            for single, parameters in (("SGD", "μ"), ("NM", "βv")):
                cell = block["cells"][single]
                for letter in parameters:
                    errors = {
                        float(key[2:]): np.inf if error is None else error
                        for key, error in cell["grid"].items()
                        if key.startswith(f"{letter} ")
                    }
                    name = {"μ": "steps", "β": "forgetting", "v": "ridges"}[letter]
                    assert {*errors} >= {float(f"{v:g}") for v in settings[name]}
                    best = float(re.search(rf"{letter} ([^,]+)", cell["setting"])[1])
                    assert errors[best] == min(errors.values()) == cell["mse"]
                    assert min(errors) < best < max(errors) or (letter, best) == ("β", 1.0)


def test_counts_on_the_pages_are_those_of_the_json():
    """Some rows of the claims and of the report, counted from the JSON in another way."""
    records = recorded()
    table = pages.load("table1")["results"]
    texts = {claim.words: answer for claim, answer in claims.answers(records)}
    report = text_of(FOLDER / "paper" / "REPORT.md")
    for combiner in protocol.TABLED:
        gains = [
            cell["combiners"][combiner]["gain"]
            for block in table.values()
            for cell in block["cells"].values()
            if "combiners" in cell
        ]
        scores = np.array([gain["mean"] / gain["error"] for gain in gains])
        lower, higher = int((scores > 2).sum()), int((scores < -2).sum())
        within = len(gains) - lower - higher
        assert f"| safe, {combiner} | {lower} / {within} / {higher} |" in report
        words = "the algorithms “successfully improve” single learners (all of Table 1)"
        counts = f"{combiner} {lower} below, {within} within the spread, {higher} above"
        assert counts in texts[words][1]

    trees = records["trees"]["results"]
    for what, words in {
        "one tree": "piecewise linear trees can be boosted: five trees against one",
        "equal size": "boosted trees are worth their size: against one tree of as many leaves",
    }.items():
        for mode in ("WU", "RU", "DR"):
            cells = []
            for block in trees.values():
                deepest = max(key for key in block["boosted"] if key.startswith(mode))
                cells.append(block["boosted"][deepest]["5"]["combiners"]["forward RLS"])
            below = sum(c["gain"][what]["mean"] > 2 * c["gain"][what]["error"] for c in cells)
            above = sum(-c["gain"][what]["mean"] > 2 * c["gain"][what]["error"] for c in cells)
            counts = f"{mode}: {below} of {len(trees)} streams below, {above} above"
            assert counts in texts[words][1]


def test_both_loops_in_c_are_the_algorithm_of_the_library(monkeypatch):
    """More learners than a group of lanes holds, and an odd number of columns."""
    loop = speed_native.build()
    if isinstance(loop, str):
        pytest.skip(loop)
    monkeypatch.setattr(speed_cases, "M", 30)
    r, T = 5, 1500
    xs, ds = speed_cases.stream(T, r)
    names = [f"{family}-{mode}" for family in ("BSGD", "BNM") for mode in ("WU", "DR", "RU")]
    settings = dict.fromkeys(names, speed_cases.Settings(r))
    for combiner in ("NSGD", "Newton"):
        combiners = [(name, combiner) for name in names]
        lengths = {"BSGD": T, "BNM": T}
        cases = list(speed_cases.cases_at(r, xs, ds, lengths, combiners, settings, loop))
        apart = speed_cases.check_same_algorithm(loop, cases, settings, xs, ds)
        assert len(apart) == len(names) * len(speed_native.LAYOUTS)
        hows = {case.how for case in cases if case.name == "BNM-RU"}
        assert hows == {"jboost", "P form", "C, together", "C, side by side"}


def test_times_are_compared_with_the_faster_loop_in_c():
    times = {"C, together": 2.0, "C, side by side": 1.0, "jboost": 1.5}
    rows = [
        speed_report.Row("BSGD-WU", 3, how, "Newton", 1, spent, 0.0, 0.01, finite=True)
        for how, spent in times.items()
    ]
    results = speed_report.Results(rows, [], {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
    assert results.time("BSGD-WU", 3, "C", "Newton") == 1.0
    assert results.time("BSGD-WU", 3, "C, together", "Newton") == 2.0
    assert results.faster("BSGD-WU", 3, "Newton") == "side by side"
    record = {"results": {"rows": [row._asdict() for row in rows]}}
    assert "| BSGD-WU | 1.5 | 1.50 | 0.0100 |" in tables.speed(record)


def test_the_first_command_is_judged_by_its_ratio_to_the_other_checkout():
    other = {"cold": 12.0, "warm": 12.0}
    record = {"results": {"this version": {"cold": 3.0, "warm": 3.0}, "commit abc": other}}
    shown = first_command.shown(record)
    assert "| ratio | 0.250 | 0.250 |" in shown and "|  | ok | NOT MET |" in shown
    del record["results"]["commit abc"]
    assert "ratio" not in first_command.shown(record)
