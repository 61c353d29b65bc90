"""``jboost run --events``: what to look at, as lines of JSON and as columns of the predictions."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from jboost.cli import main

pytest.importorskip("pyarrow")
ROWS = 1500
RUN = ["--target", "y", "--model", "newton", "--intervals", "0.9", "--events"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Write a file with a wild answer, noise that grows, and a column that moves."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, ROWS))
    b[1200:] += 2
    noise = 0.1 * rng.normal(size=ROWS) * np.where(np.arange(ROWS) < 900, 1, 5)
    y = a + 0.2 * np.sin(b) + noise
    y[600] += 5
    lines = [
        f"{p:.4f},{q:.4f},{r:.4f},k{t}" for t, (p, q, r) in enumerate(zip(a, b, y, strict=True))
    ]
    head = "a,b,y,id\n"
    Path("data.csv").write_text(head + "\n".join(lines) + "\n")
    Path("half.csv").write_text(head + "\n".join(lines[:700]) + "\n")


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_events_are_what_happened(capsys):
    options = ["--id", "id", "--predictions", "p.csv"]
    assert main(["run", "data.csv", *RUN, "e.jsonl", *options]) == 0
    found = read("e.jsonl")
    by_name = {name: [e for e in found if e["event"] == name]
               for name in ("outside", "anomaly", "change", "drift")}  # fmt: skip
    wild = [e for e in found if e["row"] == 601]
    assert {e["event"] for e in wild} >= {"outside", "anomaly"} and wild[0]["id"] == "k600"
    assert next(e for e in wild if e["event"] == "anomaly")["p_value"] < 0.01
    assert all(e["target"] < e["lower"] or e["target"] > e["upper"] for e in by_name["outside"])
    assert 0.05 * ROWS < len(by_name["outside"]) < 0.16 * ROWS
    assert [e["row"] for e in by_name["change"] if 900 < e["row"] < 960]
    assert [e["row"] for e in by_name["drift"] if e["column"] == "b" and 1200 < e["row"] < 1260]
    assert len(by_name["change"]) + len(by_name["drift"]) <= 6
    with open("p.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]][-5:] == ["p_value", "outside", "anomaly", "change", "drifted"]
    for name, column in (("outside", "outside"), ("anomaly", "anomaly"), ("change", "change")):
        assert [int(r["row"]) for r in rows if r[column] == "1"] == [
            e["row"] for e in by_name[name]
        ]
    assert f"{len(by_name['outside'])} outside" in capsys.readouterr().err


def test_a_run_that_goes_on_has_the_same_events(capsys):
    assert main(["run", "data.csv", *RUN, "whole.jsonl"]) == 0
    assert main(["run", "half.csv", *RUN, "e.jsonl", "--checkpoint", "c.run"]) == 0
    resumed = ["--target", "y", "--events", "e.jsonl", "--checkpoint", "c.run", "--resume"]
    assert main(["run", "data.csv", *resumed]) == 0
    assert Path("e.jsonl").read_text() == Path("whole.jsonl").read_text()
    capsys.readouterr()
    assert (
        main(["run", "half.csv", "--target", "y", "--model", "nlms", "--checkpoint", "d.run"]) == 0
    )
    assert main(["run", "data.csv", *resumed[:4], "--checkpoint", "d.run", "--resume"]) == 2
    assert "begun without --events" in capsys.readouterr().err
