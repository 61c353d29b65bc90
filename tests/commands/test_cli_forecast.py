"""`jboost run --horizon` and `jboost forecast`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chex
import numpy as np
import pytest

import jboost as jb
from jboost.checkpoints import checkpoint
from jboost.cli import main
from jboost.files import lines as text_lines

pytest.importorskip("pyarrow")

ROWS, H = 400, 4
RUN = ["--target", "y", "--time", "when", "--horizon", str(H)]


def lines() -> list[str]:
    rng = np.random.default_rng(3)
    times = np.datetime64("2024-03-01T00") + 6 * np.arange(ROWS + H) * np.timedelta64(1, "h")
    plan = rng.random(ROWS + H) < 0.3
    y = 50 + 10 * np.sin(np.arange(ROWS + H) * np.pi / 2) + 8 * plan + rng.normal(size=ROWS + H)
    return [f"{t},{int(p)},{v:.3f}" for t, p, v in zip(times, plan, y, strict=True)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """A folder with the whole file, its two halves, and the rows that follow, without answers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 3000)
    rows = lines()
    files = {"all": rows[:ROWS], "one": rows[:250], "two": rows[250:ROWS]}
    files["future"] = [line.rpartition(",")[0] + "," for line in rows[ROWS:]]
    for name, part_of in files.items():
        text = "\n".join(["when,plan,y", *part_of]) + "\n"
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    return tmp_path


def forecasts(path: str) -> tuple[list[str], np.ndarray]:
    head, *rows = Path(path).read_text().splitlines()
    cells = [row.split(",") for row in rows]
    return head.split(","), np.array(cells)


def test_forecasts_are_written_for_each_row_and_horizon(folder: Path, capsys: Any) -> None:
    words = ["--predictions", "out.csv", "--report", "r.html", "--plot", "p.png"]
    assert main(["run", "all.csv", *RUN, "--intervals", "0.8", *words]) == 0
    head, cells = forecasts("out.csv")
    assert head == ["row", "when", "horizon", "for", "prediction", "lower", "upper"]
    assert cells.shape == (ROWS * H, 7)
    assert cells[5].tolist()[:4] == ["2", "2024-03-01T06", "2", "2024-03-01T18:00:00"]
    shown = capsys.readouterr()
    names = [line.split("  ")[0] for line in shown.out.splitlines()]
    assert names == ["", "forecast", "last value", "a day before", "a week before"]
    assert "0.8 intervals: " in shown.err and "pairs of a forecast and its answer" in shown.err
    assert "By horizon" in Path("r.html").read_text() and Path("p.png").stat().st_size > 1000

    y = np.array([float(line.rpartition(",")[2]) for line in lines()[:ROWS]])
    prediction = cells[:, 4].astype(float).reshape(ROWS, H)
    errors = np.concatenate([prediction[:-h, h - 1] - y[h:] for h in range(1, H + 1)])
    assert float(shown.out.splitlines()[1].split()[1]) == pytest.approx(
        np.mean(errors**2), rel=1e-3
    )


def test_a_run_goes_on_with_new_rows_and_is_the_same_run(folder: Path, capsys: Any) -> None:
    assert (
        main(["run", "all.csv", *RUN, "--checkpoint", "all.run", "--predictions", "all.out"]) == 0
    )
    assert main(["run", "one.csv", *RUN, "--checkpoint", "k.run", "--predictions", "k.out"]) == 0
    whole = capsys.readouterr().out.splitlines()[:5]
    words = ["--checkpoint", "k.run", "--append", "--predictions", "k.out"]
    assert main(["run", "two.csv", *words]) == 0
    assert capsys.readouterr().out.splitlines() == whole
    assert Path("k.out").read_bytes() == Path("all.out").read_bytes()
    assert main(["forecast", "k.run"]) == 0
    printed = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == ["horizon", "for", "prediction"]
    last = forecasts("all.out")[1][-H:]
    assert [row[1:] for row in printed[1:]] == last[:, [3, 4]].tolist()
    assert main(["run", "two.csv", *words, "--horizon", "9"]) == 2
    assert "forecasts 4 rows ahead, and --horizon is 9" in capsys.readouterr().err
    assert main(["predict", "k.run", "two.csv"]) == 2
    assert "jboost forecast k.run" in capsys.readouterr().err


def test_known_columns_come_from_the_rows_that_follow(folder: Path, capsys: Any) -> None:
    words = ["--known", "plan", "--checkpoint", "k.run", "--predictions", "k.out"]
    assert main(["run", "all.csv", *RUN, *words]) == 0
    known = float(capsys.readouterr().out.splitlines()[1].split()[3])
    assert main(["run", "all.csv", *RUN]) == 0
    assert known < 0.8 * float(capsys.readouterr().out.splitlines()[1].split()[3])

    content = checkpoint.read("k.run")
    model, rows = content.model, lines()
    assert isinstance(model, jb.Forecast) and model.known == (20,)
    assert content.position == ROWS - H  # the last rows wait for what is known after them
    assert main(["forecast", "k.run", "future.csv"]) == 0
    printed = [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]
    # It is what a run says that has the rows to come in its file.
    future = Path("future.csv").read_text().splitlines()[1:]
    Path("both.csv").write_text("\n".join(["when,plan,y", *rows[:ROWS], *future]) + "\n")
    assert main(["run", "both.csv", *RUN, "--known", "plan", "--predictions", "both.out"]) == 0
    expected = forecasts("both.out")[1][(ROWS - 1) * H : ROWS * H]
    assert [row[:2] for row in printed] == expected[:, [2, 3]].tolist()
    of_both = expected[:, 4].astype(float)
    np.testing.assert_allclose([float(row[2]) for row in printed], of_both, rtol=1e-5)
    # Rows without an answer have the forecast of the last row, for the same times.
    last = forecasts("both.out")[1][-H:]
    assert last[:, [3, 4]].tolist() == expected[:, [3, 4]].tolist()
    capsys.readouterr()
    assert main(["forecast", "k.run", "one.csv"]) == 3
    assert "has none of the 4 rows after the last row" in capsys.readouterr().err


@pytest.mark.parametrize("time", [True, False])
def test_a_run_that_is_appended_to_learns_what_was_known(folder: Path, time: bool, capsys: Any):
    """Rows at the end of a file learn once more what is known of the first rows of the next."""
    parts = {"all": lines()[:ROWS], "one": lines()[:250], "two": lines()[250:252]}
    parts |= {"three": lines()[252:ROWS]}
    for name, rows in parts.items():
        rows = ["when,plan,y", *rows]
        if not time:
            rows = [row.partition(",")[2] for row in rows]
        Path(f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    run = ["--target", "y", "--horizon", str(H), "--known", "plan", "--intervals", "0.8"]
    run += ["--time", "when"] if time else []
    words = ["--checkpoint", "all.run", "--predictions", "all.out"]
    assert main(["run", "all.csv", *run, *words]) == 0
    whole = capsys.readouterr().out
    words = ["--checkpoint", "k.run", "--predictions", "k.out"]
    assert main(["run", "one.csv", *run, *words]) == 0
    assert forecasts("k.out")[1].shape[0] == 250 * H
    assert main(["run", "two.csv", *words, "--append"]) == 0
    capsys.readouterr()
    assert main(["run", "three.csv", *words, "--append"]) == 0
    assert capsys.readouterr().out == whole
    assert Path("k.out").read_bytes() == Path("all.out").read_bytes()
    ours, theirs = (checkpoint.read(name) for name in ("k.run", "all.run"))
    assert ours.position == theirs.position == ROWS - H
    chex.assert_trees_all_equal(ours.state, theirs.state)
    assert main(["run", "two.csv", *run, "--checkpoint", "short.run"]) == 0
    assert "no row is followed by 4 others" in capsys.readouterr().err
    assert not Path("short.run").exists()


def test_rows_without_an_answer_count_as_steps(folder: Path, capsys: Any) -> None:
    """Without a column of times too: seasons do not slip, and lags are what they say."""
    rows = [row.rpartition(",") for row in lines()[:ROWS]]
    rng = np.random.default_rng(5)
    some = [b"" if rng.random() < 0.3 else b"1" for _ in rows]
    texts = [f"{y if there else ''}" for (_, _, y), there in zip(rows, some, strict=True)]
    Path("gaps.csv").write_text("\n".join(["i,y", *(f"0,{y}" for y in texts)]) + "\n")
    words = ["--target", "y", "--horizon", str(H), "--predictions", "gaps.out"]
    assert main(["run", "gaps.csv", *words, "--checkpoint", "gaps.run"]) == 0
    shown = capsys.readouterr().out.splitlines()
    ours, last = (float(line.split()[-4]) for line in shown[1:3])
    assert ours < 0.6 * last  # a season of four rows
    content = checkpoint.read("gaps.run")
    assert int(content.state.number) == max(i for i, y in enumerate(texts) if y) + 1


def test_wrong_words_are_one_sentence(folder: Path, capsys: Any) -> None:
    for words, sentence in (
        (["run", "all.csv", "--target", "y", "--known", "plan"], "pass --horizon H too"),
        (["run", "all.csv", *RUN, "--known", "pan"], "did you mean 'plan'?"),
        (["run", "all.csv", *RUN, "--known", "when"], "--known is no column of times"),
        (["run", "all.csv", *RUN, "--set", "m=3"], "--set is for a --model"),
        (["run", "all.csv", *RUN, "--key", "plan", "--known", "plan"], "'plan', which has another"),
        (["forecast", "all.csv"], "all.csv"),
    ):
        assert main(words) in (1, 2, 3)
        assert sentence in capsys.readouterr().err


def test_times_that_repeat_go_back_or_are_missing_are_counted(folder: Path, capsys: Any) -> None:
    head, *rows = Path("all.csv").read_text().splitlines()
    odd = [*rows[:100], rows[99], rows[40], *rows[100:120], *rows[130:200]]
    Path("odd.csv").write_text("\n".join([head, *odd]) + "\n", encoding="utf-8")
    assert main(["run", "odd.csv", *RUN]) == 0
    said = capsys.readouterr().err
    assert "2 rows were left out" in said and "10 steps had no row" in said
