"""``jboost run --explain``: a file of what each column adds, and the columns in the report."""

import csv
from pathlib import Path

import numpy as np
import pytest

from jboost.cli import main

pytest.importorskip("pyarrow")
ROWS = 300


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Write a file with a number, a text, a time and a column that tells nothing."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a, towns, idle = rng.normal(size=ROWS), rng.integers(0, 3, ROWS), rng.normal(size=ROWS)
    hours = np.datetime64("2024-01-01T00:00", "m") + np.arange(ROWS) * np.timedelta64(60, "m")
    y = 3 * a + np.array([0.0, 5.0, -5.0])[towns] + 0.01 * rng.normal(size=ROWS)
    names = np.array(["Bonn", "Köln", "Ulm"])[towns]
    rows = zip(hours.astype(str), a.round(4), names, idle.round(4), y.round(4), strict=True)
    lines = [",".join(map(str, row)) for row in rows]
    (tmp_path / "data.csv").write_text("when,a,town,idle,y\n" + "\n".join(lines) + "\n")
    (tmp_path / "half.csv").write_text("when,a,town,idle,y\n" + "\n".join(lines[:170]) + "\n")


def explained(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


RUN = ["--target", "y", "--model", "newton", "--explain", "why.csv"]


def test_every_prediction_is_explained_by_the_columns_of_the_file(capsys):
    assert main(["run", "data.csv", *RUN, "--predictions", "p.csv", "--report", "r.html"]) == 0
    said = capsys.readouterr().err
    rows, predictions = explained("why.csv"), explained("p.csv")
    assert [*rows[0]] == [
        *("row", "when", "target", "prediction", "base"),
        *("part_when", "part_a", "part_town", "part_idle"),
    ]
    assert len(rows) == ROWS
    sizes = dict.fromkeys(("part_when", "part_a", "part_town", "part_idle"), 0.0)
    for row, predicted in zip(rows, predictions, strict=True):
        assert row["prediction"] == predicted["prediction"]
        parts = {name: float(row[name]) for name in sizes}
        total = float(row["base"]) + sum(parts.values())
        assert abs(total - float(row["prediction"])) < 1e-4
        sizes = {name: size + abs(parts[name]) / ROWS for name, size in sizes.items()}
    assert sizes["part_town"] > sizes["part_a"] > 5 * sizes["part_idle"]
    assert "what moves the predictions: 'town' " in said
    page = Path("r.html").read_text(encoding="utf-8")
    assert "mean size of its part" in page and f"{sizes['part_town']:.4g}"[:4] in page


def test_a_run_that_goes_on_explains_the_same_bits():
    assert main(["run", "data.csv", *RUN]) == 0
    whole = Path("why.csv").read_bytes()
    more = [*RUN[:-1], "parts.csv", "--checkpoint", "c.run"]
    assert main(["run", "half.csv", *more]) == 0
    assert main(["run", "data.csv", *more, "--resume"]) == 0
    assert Path("parts.csv").read_bytes() == whole


def test_a_file_that_is_not_the_runs_own_is_left_alone(capsys):
    arguments = ["--target", "y", "--model", "nlms", "--checkpoint", "c.run"]
    assert main(["run", "half.csv", *arguments]) == 0
    Path("why.csv").write_text("mine\n")
    assert main(["run", "data.csv", *arguments, "--resume", "--explain", "why.csv"]) == 2
    assert "name a new file" in capsys.readouterr().err
    assert Path("why.csv").read_text() == "mine\n"
    assert main(["run", "data.csv", *arguments, "--resume", "--explain", "new.csv"]) == 0
    assert [row["row"] for row in explained("new.csv")] == [str(n) for n in range(171, ROWS + 1)]
