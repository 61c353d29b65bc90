"""`jboost run --intervals`, and what its pages and plots show of learners."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jboost as jb
from jboost import catalogue
from jboost.checkpoints import checkpoint
from jboost.cli import main
from jboost.files import lines as text_lines
from jboost.files import predictions
from jboost.reports.accounts import Learners
from jboost.wrappers.intervals import band

pytest.importorskip("pyarrow")
from PIL import Image

ROWS = 300
NLMS = ["--model", "nlms"]
BOOSTER = ["--model", "bsgd_wu", "--set", "m=3"]


def table(rows: int = ROWS) -> np.ndarray:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, 2))
    return np.column_stack([x, x @ [3.0, -1.0] + rng.normal(size=rows)]).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """An empty folder with one file in it, read some lines at a time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 1500)
    lines = (",".join(map(str, row)) for row in table().astype(object))
    (tmp_path / "data.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    return tmp_path


def run(*words: str) -> int:
    return main(["run", *words])


def predicted(path: str) -> np.ndarray:
    head, *lines = Path(path).read_text().splitlines()
    assert head == "row,target,prediction,lower,upper"
    return np.array([[float(cell or "nan") for cell in line.split(",")] for line in lines])


def test_bounds_are_written_and_measured(folder: Path, capsys: Any) -> None:
    command = ("data.csv", "--target", "y", *NLMS, "--intervals", "0.8")
    assert run(*command, "--predictions", "o.csv", "--checkpoint", "c") == 0
    _, d, made, low, high = predicted("o.csv").T
    data = table()
    model = catalogue.resolve("nlms", intervals=0.8)
    _, trace = jb.run(model, data[:, :2], data[:, 2], observe=band)
    expected = (trace.prediction, *trace.observed)
    for found, wanted in zip((made, low, high), expected, strict=True):
        np.testing.assert_array_equal(found.astype(np.float32), wanted)
    assert (low[0], high[0]) == (-np.inf, np.inf)
    inside = ((low <= d) & (d <= high))[1:]
    width = np.mean((high - low)[1:])
    said = f"{inside.mean():.1%} of the answers inside, {inside.mean():.1%} lately; mean width "
    out = capsys.readouterr().err
    assert 0.75 < inside.mean() < 0.85 and f"0.8 intervals: {said}" in out
    found = re.search(r"mean width ([\d.e+]+)", out)
    assert found and float(found[1]) == pytest.approx(width, rel=1e-4)
    assert main(["inspect", "c"]) == 0
    out = capsys.readouterr().out
    assert f"intervals   0.8: {said}" in out and "coverage 0.8" in out


def test_interrupted_and_resumed_is_the_same_run(
    folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    asked = ["data.csv", "--target", "y", *BOOSTER, "--intervals", "0.9", "--every", "1"]
    whole = ["--predictions", "whole.csv", "--checkpoint", "whole", "--report", "whole.html"]
    assert run(*asked, *whole) == 0
    write = predictions.Predictions.write

    def stop(self: Any, start: int, *rest: Any, **more: Any) -> None:
        write(self, start, *rest, **more)
        if start > 100:
            raise KeyboardInterrupt

    command = [*asked, "--predictions", "o.csv", "--checkpoint", "c", "--report", "r.html"]
    monkeypatch.setattr(predictions.Predictions, "write", stop)
    assert run(*command) == 130
    monkeypatch.setattr(predictions.Predictions, "write", write)
    capsys.readouterr()
    for given, had in ((["0.5"], "has intervals of 0.9"), (["0.5", *NLMS], "of 0.9")):
        assert run("data.csv", "--checkpoint", "c", "--resume", "--intervals", *given) == 2
        assert had in capsys.readouterr().err
    again = ["--checkpoint", "c", "--predictions", "o.csv", "--report", "r.html", "--resume"]
    assert run("data.csv", "--intervals", "0.9", *again) == 0
    assert Path("o.csv").read_bytes() == Path("whole.csv").read_bytes()
    one, other = (checkpoint.read(name).extra["caller"] for name in ("c", "whole"))
    for account in ("tally", "bands", "learners"):
        assert one[account] == other[account] is not None
    capsys.readouterr()
    assert run("data.csv", "--target", "y", *NLMS, "--checkpoint", "plain") == 0
    assert run("data.csv", "--checkpoint", "plain", "--resume", "--intervals", "0.9") == 2
    assert "has no intervals, and --intervals is 0.9" in capsys.readouterr().err


def images(path: str) -> list[Any]:
    found = re.findall(r"data:image/png;base64,([^\"]+)", Path(path).read_text())
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in found]


def test_the_page_shows_the_band_and_the_learners(folder: Path, capsys: Any) -> None:
    command = ("data.csv", "--target", "y", "--report", "r.html", "--plot", "p.png")
    for words, count, expected in (
        (NLMS, 1, ["Over time"]),
        ([*NLMS, "--intervals", "0.9"], 2, ["Intervals", "0.9 intervals:"]),
        (BOOSTER, 2, ["Learners", "mean λ", "share"]),
    ):
        assert run(*command, *words) == 0
        text = Path("r.html").read_text()
        assert all(word in text for word in expected)
        found = images("r.html")
        assert len(found) == count and all(min(image.size) > 300 for image in found)
        with Image.open("p.png") as picture:
            assert picture.height > 350 * count
    rows = re.findall(r"<tr><td>(\d)</td>" + r'<td class="number">([-\d.]+)</td>' * 3, text)
    assert [row[0] for row in rows] == ["1", "2", "3"] and rows[0][1] == "1.000"
    assert sum(float(row[3]) for row in rows) == pytest.approx(1, abs=0.002)


def test_learners_are_watched_for_pictures_alone(folder: Path, capsys: Any) -> None:
    """And no number of the run depends on it."""
    command = ("data.csv", "--target", "y", *BOOSTER, "--predictions")
    assert run(*command, "a.csv", "--checkpoint", "a") == 0
    assert run(*command, "b.csv", "--checkpoint", "b", "--plot", "p.png") == 0
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    plain, drawn = (checkpoint.read(name).extra["caller"]["learners"] for name in "ab")
    assert plain is None and Learners.from_dict(drawn).spans.rows == ROWS
    with open("data.csv", "a") as file:
        file.write("1,2,3\n")
    assert run("data.csv", "--checkpoint", "a", "--resume", "--report", "r.html") == 0
    late = Learners.from_dict(checkpoint.read("a").extra["caller"]["learners"])
    assert (
        late.spans.rows == ROWS + 1
        and np.isnan(late.lam[:-1]).all()
        and np.isfinite(late.z[-1]).all()
    )


def test_in_a_pipe_and_without_answers(folder: Path) -> None:
    command = [sys.executable, "-m", "jboost.cli", "run", "-", "--target", "y", *NLMS]
    environment = os.environ | {"PYTHONPATH": str(Path(jb.__file__).parents[1])}
    done = subprocess.run(
        [*command, "--intervals", "0.9", "--predictions", "-", "--report", "r.html"],
        input="a,y\n1,\n2,\n",
        capture_output=True,
        text=True,
        env=environment,
    )
    head, *lines = done.stdout.splitlines()
    assert head == "row,target,prediction,lower,upper"
    assert lines == ["1,,0,-inf,inf", "2,,0,-inf,inf"]
    assert "0.9 intervals: no answer to measure them by" in done.stderr


def test_a_part_is_between_0_and_1(folder: Path, capsys: Any) -> None:
    for given in ("1", "0", "90", "most"):
        with pytest.raises(SystemExit, match="2"):
            run("data.csv", "--target", "y", "--intervals", given)
        assert f"must be a number between 0 and 1; got '{given}'" in capsys.readouterr().err
