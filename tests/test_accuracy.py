"""The accuracy benchmark: what peers are given, that cells are kept, and who is said to win."""

import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.bench import accuracy_limits, accuracy_peers, accuracy_report, peer_models
from experiments.shared import sets

NAN = math.nan


def test_the_sets_are_split_in_halves():
    assert len(sets.CHOSEN) == len(sets.HELD_OUT) == 9 and len(set(sets.NAMES)) == 18
    assert set(sets.ORDERED) < set(sets.NAMES)


def test_a_set_is_read_from_the_folder_and_scaled_with_its_gaps(tmp_path, monkeypatch):
    monkeypatch.setenv("JBOOST_DATA", str(tmp_path))
    x = np.array([[0, 5], [NAN, 5], [10, 5], [5, 5]], np.float32)
    np.savez(tmp_path / "wind.npz", x=x, y=np.array([1, 2, 5, 3], np.float32))
    xs, ds = sets.load("wind")
    assert sets.half_range(ds) == 2
    xs, ds = sets.scaled(xs, ds)
    np.testing.assert_array_equal(xs, [[-1, 0], [NAN, 0], [1, 0], [0, 0]])
    np.testing.assert_array_equal(ds, [-1, -0.5, 1, 0])
    with pytest.raises(SystemExit, match="no files for pol in the folder that JBOOST_DATA names"):
        sets.origin(["wind", "pol"], quick=True)


def test_lags_are_answers_that_have_come():
    found = sets.with_lags(np.array([[9.0]] * 5), np.arange(1.0, 6.0))
    assert found.tolist() == [[9, 0, 0, 0], [9, 1, 0, 0], [9, 2, 1, 0], [9, 3, 2, 1], [9, 4, 3, 2]]


def test_a_gap_has_the_latest_value_of_its_column():
    xs = np.array([[NAN, 1], [2, NAN], [NAN, NAN], [3, 4]])
    assert sets.without_gaps(xs).tolist() == [[0, 1], [2, 1], [2, 1], [3, 4]]


def test_the_first_row_does_not_count():
    found = accuracy_peers.errors([100, 0, 0, 0], [0, 1, 2, 4])
    assert found == {"mse": 7.0, "late": 10.0}


def test_lightgbm_is_fitted_to_the_past_alone(monkeypatch):
    fits = []

    class Newest:
        """It predicts the last target that it was fitted to."""

        def __init__(self, **options):
            assert options["n_jobs"] == 1

        def fit(self, xs, ds):
            fits.append(len(ds))
            self.newest = ds[-1]

        def predict(self, xs):
            return np.full(len(xs), self.newest)

    monkeypatch.setitem(sys.modules, "lightgbm", SimpleNamespace(LGBMRegressor=Newest))
    ds = np.arange(1, 1201, dtype=np.float64)
    said = peer_models.predictions("LightGBM", ds[:, None], ds)
    assert fits == [50, 100, 200, 350, 500, 1000]
    assert said[:3].tolist() == [0, 1, 1.5] and len(said) == 1200
    assert [said[t] for t in (50, 99, 100, 999, 1000, 1199)] == [50, 50, 100, 500, 1000, 1000]


def test_a_cell_is_kept_and_never_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("JBOOST_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(accuracy_peers, "FILE", tmp_path / "peers.json")
    options = ["--quick", "--out", str(tmp_path), "--only", "last value", "LinearRegression"]
    accuracy_peers.main(options)
    record = json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))
    cells = record["sets"]["kin8nm"]["plain"]
    assert set(cells) == {"last value", "LinearRegression"} and record["rows"] == 100
    assert all(set(cell) == {"mse", "late", "us"} for cell in cells.values())
    monkeypatch.setattr(accuracy_peers, "measure", None)  # calling it would raise
    accuracy_peers.main(options)
    assert capsys.readouterr().err.count("STAND-IN") == 2


def test_cells_of_another_version_are_dropped():
    cell = {"mse": 1.0, "late": 1.0, "us": 1.0}
    rows = {"kin8nm": {"plain": {"LightGBM": cell, "AMRules": cell, "last value": cell}}}
    record = {"rows": 9, "seed": 1, "versions": {"river": "1", "lightgbm": "4"}, "sets": rows}
    found = accuracy_peers.started(record, 9, {"river": "2"})
    assert set(found["sets"]["kin8nm"]["plain"]) == {"LightGBM", "last value"}
    assert found["versions"] == {"river": "2", "lightgbm": "4"}
    assert accuracy_peers.started(record, 10, {})["sets"] == {}


def test_a_library_that_is_not_installed_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(peer_models, "library", lambda name: "a-package-that-nobody-has")
    assert accuracy_peers.installed(["LightGBM"]) == {}
    assert "is not installed: its regressors are left out" in capsys.readouterr().out


def cell(mse):
    return {"mse": mse, "late": mse, "us": 30.0}


def example():
    """auto with 1 on every set, river at 2, LightGBM at 4; on wind lags help the peers."""
    block = {
        "T": 10, "features": 1, "ordered": False, "seeds": {"mse": [1.0, 0.9, 1.0], "late": [1.0]},
        "medium": {"mse": 1.0, "us": 5.0, "tenths": [1.0] * 10, "all rows": {"mse": 1.0}},
        "last value": {"tenths": [8.0] * 10}, "best fixed mix": 1.0,
        "best expert": {"name": "line", "mse": 2.0},
    }  # fmt: skip
    found = {"AMRules": cell(2.0), "KNNRegressor": cell(None), "LightGBM": cell(4.0)}
    found |= {"LightGBM, its defaults": cell(5.0), "last value": cell(8.0)}
    record = {"sets": {name: {"plain": dict(found)} for name in sets.NAMES}}
    for name in sets.ORDERED:
        record["sets"][name]["lags"] = dict(found)
    results = {"sets": {name: dict(block) for name in sets.NAMES}, "first": {}}
    results["bytes"] = {"medium": {"8": 1024}}
    return results, record


def test_the_winner_is_named():
    results, record = example()
    record["sets"]["wind"]["lags"]["AMRules"] = cell(0.5)
    record["sets"]["wind"]["plain"]["AMRules"] = cell(0.1)  # without lags: not compared
    record["sets"]["pol"]["plain"]["CapyMOA kNN"] = cell(0.99)
    pairs = accuracy_report.pairs(results, record, "best of river")
    assert accuracy_report.geometric_mean(pairs) == pytest.approx((0.5**17 * 2) ** (1 / 18))
    assert [(p.name, p.which, p.ratio) for p in accuracy_report.behind(pairs)] == [
        ("wind", "AMRules", 2.0)
    ]
    shown = accuracy_report.summary(results, record)
    assert "| 17 of 18 | wind 2.00 |" in shown and "| 0 of 1 | pol 1.01 |" in shown
    row = next(
        line for line in accuracy_report.each_set(results, record).split("\n") if "wind" in line
    )
    assert "| 1 | 1.11 | **0.5** AMRules | – | 4 | 8 |" in row
    limits = {row.what: row for row in accuracy_limits.limits(results, record)}
    level = limits["sets within 2 % of every online peer, or better"]
    assert level.measured == 17 and level.holds and "wind: AMRules 0.5, auto 1" in level.where
    assert limits["sets with an error below LightGBM's"].measured == 18
    assert limits["error over LightGBM refitted, geometric mean"].measured == pytest.approx(0.25)
    assert limits["time a sample over that of LightGBM, median of the sets"].holds


def test_a_record_that_is_not_complete_says_so():
    results, record = example()
    assert "have not run yet" in accuracy_report.summary(results, record)
    assert "CapyMOA" not in accuracy_report.summary(results, record)  # nothing to show
    for name in sets.NAMES:
        inputs = accuracy_peers.comparable(name)
        record["sets"][name][inputs] = dict.fromkeys(peer_models.NAMES, cell(2.0))
    assert "have not run yet" not in accuracy_report.summary(results, record)


def test_a_limit_that_is_not_kept_is_shown():
    results, record = example()
    results["sets"]["mv"]["medium"] = {**results["sets"]["mv"]["medium"], "tenths": [9.0] * 10}
    shown = accuracy_limits.shown(results, record)
    assert "in a tenth of all rows | ≤ 1 | 1.12 | **no** | mv |" in shown


def test_a_regressor_that_broke_down_is_named():
    _, record = example()
    del record["sets"]["mv"]["plain"]["AMRules"]
    rows = accuracy_report.every_peer(record).split("\n")
    assert "| AMRules | 1.000 | 17 | 1.00 | 30 | – | mv |" in rows
    record["sets"]["mv"]["plain"]["AMRules"] = cell(None)
    assert "| AMRules | 1.000 | 17 | 1.00 | 30 | mv | – |" in accuracy_report.every_peer(record)
