"""`jboost run` and `predict` on files like those of their makers: dates, text, gaps, bad rows."""

from __future__ import annotations

import datetime
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jboost.checkpoints import checkpoint
from jboost.cli import main

pytest.importorskip("pyarrow")
FAST = ["--target", "y", "--model", "nlms"]
ROWS = 400
START = datetime.datetime(2024, 3, 1)


def lines(rows: int = ROWS, start: int = 0) -> list[str]:
    """Hourly rows with a rhythm of the day, a text and an id, as a public file has them."""
    made = []
    for i in range(start, start + rows):
        time = START + datetime.timedelta(hours=i)
        sky = ("clear", "rain", "snow")[i * 7 % 3]
        y = 50 + 20 * math.sin(2 * math.pi * time.hour / 24) + (i * 37 % 11) / 4
        made.append(
            f"{time:%Y-%m-%d %H:%M:%S},{sky},{i * 13 % 7},m{i % 4},{y + 5 * (sky == 'rain')}"
        )
    return made


def write(name: str, rows: list[str]) -> None:
    Path(name).write_text("\n".join(["when,sky,a,meter,y", *rows, ""]))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    write("data.csv", lines())
    return tmp_path


def run(*words: str) -> int:
    return main(["run", *words])


def table(out: str) -> dict[str, list[float]]:
    """The numbers of the table by the names of its rows."""
    found = {}
    for line in out.splitlines()[1:]:
        name, *cells = [cell for cell in line.split("  ") if cell.strip()]
        found[name] = [float(cell) for cell in cells]
    return found


def test_standard_output_is_one_table(capsys: Any) -> None:
    assert run("data.csv", *FAST, "--id", "meter", "--predictions", "out.csv") == 0
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert head.split() == ["MSE", "RMSE", "MAE", "ratio", "to", "mean"] and len(rows) == 5
    found = table(out)
    assert [*found] == ["nlms", "running mean", "last value", "seasonal last value, a day",
                        "seasonal last value, a week"]  # fmt: skip
    for words in ("sky (text in 5 columns)", "when (time, iso: day, week, year, elapsed, in 19",
                  "3 columns become 25 inputs", "400 rows"):  # fmt: skip
        assert words in err
    made = [line.split(",") for line in Path("out.csv").read_text().splitlines()]
    assert made[0] == ["row", "when", "meter", "target", "prediction"]
    assert made[5][:3] == ["5", "2024-03-01 04:00:00", "m0"]
    d, p = (np.array([float(row[i]) for row in made[1:]]) for i in (3, 4))
    yesterday = np.concatenate([[0], d[:23], d[:-24]])  # before the first day, the last value
    controls = {
        "nlms": p,
        "last value": np.concatenate([[0], d[:-1]]),
        "seasonal last value, a day": yesterday,
    }
    for name, estimate in controls.items():
        gap = np.abs(estimate - d)
        expected = [np.mean(gap**2), np.sqrt(np.mean(gap**2)), gap.mean()]
        np.testing.assert_allclose(found[name][:3], expected, rtol=1e-4)


def test_a_control_without_a_season_to_look_back_to_is_left_out(capsys: Any) -> None:
    write("days.csv", lines(100))
    assert run("days.csv", *FAST, "--checkpoint", "m.run") == 0
    assert [*table(capsys.readouterr().out)][3:] == ["seasonal last value, a day"]
    write("week.csv", lines(100, 100))
    assert run("week.csv", *FAST, "--checkpoint", "m.run", "--append") == 0
    assert [*table(capsys.readouterr().out)][4:] == ["seasonal last value, a week"]


def test_a_control_that_does_better_is_named(capsys: Any) -> None:
    assert run("data.csv", "--target", "y", "--model", "sgd", "--set", "step_size=1e-6") == 0
    err = capsys.readouterr().err
    assert "did better than sgd: MSE" in err and "Try --model auto" in err


def test_predict_answers_every_row_and_learns_nothing(capsys: Any) -> None:
    assert run("data.csv", *FAST, "--checkpoint", "m.run", "--intervals", "0.9") == 0
    before = Path("m.run").read_bytes()
    rows = [line.rpartition(",")[0] for line in lines(30, ROWS)]
    Path("new.csv").write_text("\n".join(["when,sky,a,meter", *rows]))  # without a target
    capsys.readouterr()
    assert main(["predict", "m.run", "new.csv", "--id", "meter"]) == 0
    out, err = capsys.readouterr()
    made = [line.split(",") for line in out.splitlines()]
    assert made[0] == ["row", "when", "meter", "target", "prediction", "lower", "upper"]
    assert len(made) == 31 and made[30][:4] == ["30", rows[29][:19], "m1", ""]
    assert "30 rows predicted, and none learned" in err and Path("m.run").read_bytes() == before
    # The first of them is what a run that goes on would have predicted.
    write("more.csv", lines(30, ROWS))
    assert run("more.csv", "--checkpoint", "m.run", "--append", "--predictions", "more.out") == 0
    first = Path("more.out").read_text().splitlines()[1].split(",")
    assert first[0] == str(ROWS + 1) and first[3] == made[1][4]
    assert main(["predict", "m.run", "more.csv", "--predictions", "p.jsonl"]) == 0
    assert "of the 30 with an answer the errors are MSE" in capsys.readouterr().err
    assert json.loads(Path("p.jsonl").read_text().splitlines()[0])["when"] == "2024-03-17 16:00:00"
    capsys.readouterr()
    Path("wrong.csv").write_text("when,y\n2024-03-17 16:00:00,1\n")
    assert main(["predict", "m.run", "wrong.csv"]) == 3
    out, err = capsys.readouterr()
    assert out == "" and "wrong.csv has no column 'sky'" in err
    assert main(["predict", "data.csv", "new.csv"]) == 1
    assert main(["predict", "m.run", "m.run"]) == 2
    assert main(["predict", "m.run", "new.csv", "--predictions", "m.run"]) == 2


def test_a_file_of_new_rows_goes_on_as_one_long_file_would(capsys: Any) -> None:
    write("first.csv", lines(250))
    write("second.csv", lines(ROWS - 250, 250))
    whole = [*FAST, "--checkpoint", "whole.run", "--predictions", "whole.csv"]
    assert run("data.csv", *whole) == 0
    expected = capsys.readouterr().out
    keep = ["--checkpoint", "m.run", "--predictions", "out.csv"]
    assert run("first.csv", *FAST, *keep) == 0
    capsys.readouterr()
    assert run("second.csv", *keep, "--append") == 0
    assert capsys.readouterr().out == expected
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    one, other = (checkpoint.read(name) for name in ("m.run", "whole.run"))
    assert one.extra["caller"]["tally"] == other.extra["caller"]["tally"]
    assert one.extra["caller"]["begins"] == 250
    assert run("second.csv", *keep, "--resume") == 0  # nothing is left of that file
    assert run("first.csv", *keep, "--append") == 0  # yesterday, after today
    assert "rows are not in the order of time, first within the rows" in capsys.readouterr().err
    assert run("first.csv", "--append") == 2


def test_rows_without_an_answer_are_predicted(capsys: Any) -> None:
    rows = lines()
    rows[-3:] = [line.rpartition(",")[0] + "," + text for line, text in
                 zip(rows[-3:], ("", "-", "n/a"), strict=True)]  # fmt: skip
    write("data.csv", rows)
    assert run("data.csv", *FAST, "--predictions", "out.csv") == 0
    assert "3 without an answer" in capsys.readouterr().err
    for line in Path("out.csv").read_text().splitlines()[-3:]:
        assert line.split(",")[2] == "" and math.isfinite(float(line.split(",")[3]))


def test_bad_rows_are_said_counted_and_left_out(capsys: Any) -> None:
    rows = lines()
    clean = [*FAST, "--predictions", "clean.csv"]
    write("data.csv", [*rows[:200], rows[200].rpartition(",")[0] + ",", *rows[201:]])
    assert run("data.csv", *clean) == 0
    write("data.csv", [*rows[:200], "what,is,this", *rows[201:]])
    capsys.readouterr()
    assert run("data.csv", *FAST) == 3
    assert "data.csv, line 202 has 3 fields" in capsys.readouterr().err
    keep = ["--bad-rows", "skip", "--predictions", "out.csv", "--report", "r.html"]
    assert run("data.csv", *FAST, *keep) == 0
    err = capsys.readouterr().err
    assert "line 202 has 3 fields where the header has 5" in err
    assert "1 could not be read" in err and "could not be read" in Path("r.html").read_text()
    one, other = (Path(name).read_text().splitlines() for name in ("out.csv", "clean.csv"))
    assert len(one) == ROWS + 1 and one[201].startswith("201,,,")
    assert one[:201] + one[202:] == other[:201] + other[202:]


def test_a_feed_of_json_lines_is_answered_in_json_lines(capfd: Any, monkeypatch: Any) -> None:
    rows = [dict(zip(("when", "sky", "a", "meter", "y"), line.split(","), strict=True))
            for line in lines(20)]  # fmt: skip
    for row in rows:
        row.update(a=float(row["a"]), y=float(row["y"]))  # type: ignore[arg-type]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    Path("feed.jsonl").write_text(text + "half a li\n")
    with open("feed.jsonl") as feed:
        monkeypatch.setattr(sys, "stdin", feed)
        assert run("-", *FAST, "--predictions", "-", "--bad-rows", "skip", "--id", "meter") == 0
    out, err = capfd.readouterr()
    made = [json.loads(line) for line in out.splitlines()]
    assert [row["meter"] for row in made[:20]] == [row["meter"] for row in rows]
    assert len(made) == 21 and made[20]["target"] is None and "line 21 is no JSON" in err


def test_columns_may_be_dropped_by_a_list(capsys: Any) -> None:
    assert run("data.csv", *FAST, "--drop", "sky,when", "--drop", "meter") == 0
    assert "become" not in capsys.readouterr().err
    for text, words in [
        ("a;y\n1,5\n", "--delimiter ';'"),
        ("a\ty\n1\n", r"--delimiter '\t'"),
        ("a;y\n1,500;2\n", "--decimal ','"),
        ("1,2\n3,4\n", "--no-header"),
    ]:
        Path("other.csv").write_text(text)
        assert run("other.csv", *FAST) == 3
        assert words in capsys.readouterr().err
    assert run("other.csv", *FAST, "--no-header") == 3
    Path("other.csv").write_text("a;y;;\r\n1,5;2;;\r\n2,5;3;;\r\n")
    assert run("other.csv", *FAST, "--delimiter", ";", "--decimal", ",") == 0
    expected, err = capsys.readouterr()
    assert "columns without a name and without values are left out: 3, 4" in err
    assert run("other.csv", *FAST) == 0  # what line 1 and the numbers show is said
    out, err = capsys.readouterr()
    assert out == expected
    assert "as if --delimiter ';' were passed" in err and "as if --decimal , were passed" in err
    assert run("other.csv", *FAST, "--decimal", ".") == 3
    assert "pass --decimal ','" in capsys.readouterr().err


def test_the_page_reads_well_and_has_times(capsys: Any) -> None:
    command = ("data.csv", *FAST, "--report", "r.html", "--plot", "p.png", "--intervals", "0.9")
    pytest.importorskip("matplotlib")
    assert run(*command) == 0
    page = Path("r.html").read_text()
    for words in ("text in 5 columns, 3 of them taken", "learner: NLMS, step_size 0.1",
                  "seasonal last value, a week", "RMSE", "MAE"):  # fmt: skip
        assert words in page
    assert "nothing learned from" not in page  # what says nothing is left out


@pytest.mark.skipif("JBOOST_DATA" not in os.environ, reason="needs the public files")
@pytest.mark.parametrize(
    ("name", "target"), [("bike_hour", "cnt"), ("metro_traffic", "traffic_volume")]
)
def test_public_files_run_with_nothing_but_the_target(name: str, target: str, capsys: Any) -> None:
    path = Path(os.environ["JBOOST_DATA"]) / "raw" / f"{name}.csv"
    if not path.exists():
        pytest.skip("the file is not there")
    with open(path) as file:
        Path("raw.csv").write_text(
            "".join(line for line, _ in zip(file, range(4000), strict=False))
        )
    assert run("raw.csv", "--target", target, "--predictions", "out.csv") == 0
    (model, *controls) = table(capsys.readouterr().out).values()
    assert all(model[0] < control[0] for control in controls)
    head, first, *_ = Path("out.csv").read_text().splitlines()
    assert head.split(",")[1] in ("dteday", "date_time") and first.split(",")[1][:2] == "20"
