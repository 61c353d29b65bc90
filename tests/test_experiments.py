"""The experiments: their command lines at a tiny size, and README.md against its JSON."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import jboost as jb

FOLDER = Path(__file__).parent.parent / "experiments"
SCRIPTS = (
    *("stationary", "duffing", "weights", "parameters", "table1", "theory"),
    *("combiners", "baselines"),
)


@pytest.fixture
def experiments(monkeypatch):
    """The scripts' folder on the path, and float64 put back as it was."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def whole(experiments):
    import all as everything

    return everything


def test_every_script_explains_itself_and_refuses_nonsense(experiments, capsys):
    import importlib

    for name in (*SCRIPTS, "all"):
        script = importlib.import_module(name)
        with pytest.raises(SystemExit) as end:
            script.main(["--help"])
        shown = capsys.readouterr().out
        assert end.value.code == 0 and "--quick" in shown and "--out" in shown
    with pytest.raises(SystemExit) as end:
        script = importlib.import_module("weights")
        script.main(["--length", "3"])
    assert end.value.code == 2 and "at least 100" in capsys.readouterr().err


def test_a_script_runs_from_the_command_line_without_the_data(tmp_path, monkeypatch):
    """The one that needs data sets uses stand-ins and says so everywhere."""
    monkeypatch.delenv("JBOOST_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = [sys.executable, str(FOLDER / "table1.py"), "--quick", "--length", "120"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "STAND-IN" in done.stderr and "[####################]" in done.stderr
    record = json.loads((tmp_path / "table1.json").read_text(encoding="utf-8"))
    assert record["quick"] and "STAND-IN" in record["settings"]["data"]
    assert all(block["stand_in"] for block in record["results"].values())
    assert set(record["versions"]) >= {"jax", "jboost", "numpy"}
    assert 1000 < (tmp_path / "table1.png").stat().st_size < 200_000


def test_a_combiner_run_on_the_estimates_is_the_combiner_inside(experiments):
    import protocol

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


def test_the_first_learners_of_a_chain_are_a_chain(experiments):
    import protocol

    xs, ds = (np.asarray(a)[None] for a in jb.streams.duffing(300))
    keys = jax.random.split(jax.random.key(0), 1)
    many, few = (
        protocol.chains(
            protocol.boosted("BSGD-RU", replace(protocol.DUFFING, m=m), literal=False), xs, ds, keys
        )
        for m in (6, 4)
    )
    np.testing.assert_allclose(many.y[..., :4], few.y, atol=1e-5)


def pages(whole) -> str:
    return "".join(page.read_text(encoding="utf-8") for page in whole.PAGES)


def test_the_pages_have_the_tables_of_the_json(whole):
    """Text and figures cannot drift apart."""
    import tables

    text = pages(whole)
    records = whole.records(FOLDER / "results")
    assert not any(record["quick"] for record in records.values())
    assert whole.filled(text, tables.blocks(records)) == text
    assert len(whole.BLOCK.findall(text)) == len(tables.blocks(records))


def test_results_are_small_and_the_pages_show_every_figure(whole):
    text = pages(whole)
    for name in SCRIPTS:
        figure = FOLDER / "results" / f"{name}.png"
        assert figure.stat().st_size < 200_000 and f"results/{name}.png" in text
        assert (FOLDER / "results" / f"{name}.json").stat().st_size < 200_000


def test_what_must_hold_in_the_record(whole):
    """The outcomes that the reproduction stands on, from the JSON of record."""
    import protocol

    records = whole.records(FOLDER / "results")
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
        assert cell["mse"] == pytest.approx(cell["paper"], rel=0.02) and cell["setting"] == "μ 0.01"
    for block in sets.values():
        for name in protocol.BOOSTED:
            for cell in block["cells"][name]["combiners"].values():
                assert np.isfinite(cell["mse"]["mean"]) and cell["mse"]["n"] == (
                    5 if "RU" in name else 1
                )

    theory = records["theory"]["results"]
    applies = [row for row in theory["lemma1"].values() if row["applies"]]
    assert len(applies) >= 3 and all(row["holds"] for row in applies)
    assert all(run["holds"] for run in theory["theorem2"]["monte_carlo"])
    for row in theory["regret"].values():
        assert row["times"][0] == 1_000 and row["times"][-1] == 1_000_000
        assert row["slope_second_half"] < 1.5 * row["slope_first_half"] + 0.05


def test_claims_are_many_and_have_a_verdict(whole):
    import claims

    done = claims.answers(whole.records(FOLDER / "results"))
    assert len(done) >= 15
    assert {answer[0] for _, answer in done} <= {"true", "false", "in part"}
