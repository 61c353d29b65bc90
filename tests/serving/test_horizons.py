"""A kept run of a forecaster that is served: its horizons, its bits, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.serving import Local, logged, same_bits

import jboost as jb
from jboost.checkpoints import checkpoint
from jboost.cli import main
from jboost.files.ahead import Timing
from jboost.serving import members
from jboost.serving.rows import Row

pytest.importorskip("pyarrow")
HOURS = np.arange(np.datetime64("2024-03-01"), np.datetime64("2024-03-09"), np.timedelta64(1, "h"))
RNG = np.random.default_rng(3)
WIND = RNG.normal(size=len(HOURS)).astype(np.float32)
LOAD = (5 + 2 * np.sin(np.arange(len(HOURS)) * np.pi / 12) + 0.3 * WIND).astype(np.float32)
KEPT = 150  # rows of the kept run; the others are served


def run_file(folder: Path, *options: str, time: bool = True) -> Path:
    head = "hour,wind,load" if time else "wind,load"
    rows = zip(HOURS[:KEPT], WIND.tolist(), LOAD.tolist(), strict=False)
    lines = [f"{hour},{w!r},{d!r}" if time else f"{w!r},{d!r}" for hour, w, d in rows]
    (folder / "load.csv").write_text("\n".join([head, *lines]) + "\n")
    named = ["run", str(folder / "load.csv"), "--target", "load", "--horizon", "3"]
    assert main([*named, "--checkpoint", str(folder / "load.run"), *options]) == 0
    return folder / "load.run"


def begin(folder: Path, run: Path) -> Local:
    member, account, _ = members.from_run(run)
    return Local(folder / "state", start=("load", "load", member, account, {"run": "load"}))


def row(i: int, *, time: bool = True) -> dict[str, Any]:
    return ({"hour": str(HOURS[i])} if time else {}) | {"wind": float(WIND[i])}


def test_a_forecaster_tells_its_horizons_and_has_the_bits_of_a_run(tmp_path: Path) -> None:
    run = run_file(tmp_path, "--intervals", "0.8")
    model = jb.load(run)[0]
    assert isinstance(model, jb.Forecast)
    local = begin(tmp_path, run)
    columns = local.stream.now.leading.columns
    assert columns is not None
    # The times, and then the inputs: the wind and what was made of the times.
    x = local.stream.now.leading.numbers([row(i) for i in range(len(WIND))]).x
    timing = Timing.of(columns)
    assert timing is not None and x.shape[1] == columns.width + 1
    np.testing.assert_array_equal(x[:, 0], timing.numbers(HOURS).astype(np.float32))
    assert (x == WIND[:, None]).all(axis=0).any()
    state, _ = jb.run(model, x[:KEPT], LOAD[:KEPT])
    for i in range(KEPT, KEPT + 6):
        told = local.ask(f"r{i}", row(i))
        low, high = model.interval(state)
        forecast = np.asarray(model.forecast(state))
        assert [of["prediction"] for of in told["horizons"]] == pytest.approx(forecast)
        assert [of["interval"][1] for of in told["horizons"]] == pytest.approx(np.asarray(high))
        assert told["prediction"] == pytest.approx(forecast[0])
        assert told["interval"] == pytest.approx([float(low[0]), float(high[0])])
        local.answer(f"r{i}", float(LOAD[i]))
        state, _ = jb.run(model, x[i : i + 1], LOAD[i : i + 1], state=state)
    assert local.stream.served.count == 6
    last = local.stream.served.last[-1]
    assert last.estimate == pytest.approx(last.prediction) and last.low is not None
    local.crash()
    assert len(logged(tmp_path / "state")) == 6
    local = Local(tmp_path / "state")
    local.do([Row(row(i), None, float(LOAD[i])) for i in range(KEPT + 6, 180)], True)
    expected, _ = jb.run(model, x[:180], LOAD[:180])
    assert same_bits(local.state, expected)
    local.stop()
    local = Local(tmp_path / "state")  # from the checkpoint alone
    assert same_bits(local.state, expected)
    assert len(local.ask(None, {"wind": None})["horizons"]) == 3
    local.stop()
    # A column that is known in advance would have to come with every request.
    content = checkpoint.read(run)
    known = jb.Forecast(horizon=3, known=(0,))
    checkpoint.save(
        run, known, known.init(4), None, position=0, num_features=4, supply_model=True,
        extra=content.extra,
    )  # fmt: skip
    with pytest.raises(checkpoint.CheckpointError, match="run it again without --known"):
        members.from_run(run)


def test_a_forecaster_without_intervals_tells_none(tmp_path: Path) -> None:
    local = begin(tmp_path, run_file(tmp_path, time=False))
    told = local.ask(None, {"wind": 1.0})
    assert told.keys() == {"prediction", "horizons"}
    assert [of.keys() for of in told["horizons"]] == [{"prediction"}] * 3
    local.stop()
