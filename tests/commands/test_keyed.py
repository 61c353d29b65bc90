"""`jboost run --key`: every key as by itself, in every format, killed, with hostile tables."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import jboost as jb
from jboost.cli import main
from jboost.commands import terminal
from jboost.fleets import shards
from jboost.forecasts import with_known
from tests.support import slow_command

MODEL = ["--target", "y", "--key", "sensor", "--model", "bsgd_ru", "--set", "m=3"]
ROWS = 600


def table(rows=ROWS, keys=7):
    rng = np.random.default_rng(0)
    key, x = rng.integers(0, keys, rows), rng.normal(size=(rows, 2)).round(3)
    y = (x[:, 0] * (1 + key) - x[:, 1]).round(3)
    names = pa.array([f"s{k}" for k in key])
    return pa.table({"sensor": names, "a": x[:, 0], "b": x[:, 1], "y": y})


def write_csv(path, rows):
    names = rows.column_names
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([row[name] for name in names] for row in rows.to_pylist())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv("t.csv", table())
    return tmp_path


def predictions(path="p.csv"):
    with open(path, newline="") as file:
        return [*csv.DictReader(file)]


def test_each_key_is_a_run_by_itself_and_the_table_counts_all(folder, capsys):
    assert main(["run", "t.csv", *MODEL, "--predictions", "p.csv", "--keys", "k.csv"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["", "bsgd_ru", "running mean", "last value"]
    rows = predictions()
    assert [row["row"] for row in rows[:2]] == ["1", "2"] and "sensor" in rows[0]
    gaps = [(float(r["target"]) - float(r["prediction"])) ** 2 for r in rows]
    assert float(lines[1].split()[1]) == pytest.approx(np.mean(gaps), rel=1e-4)
    by_key = {}
    for row, gap in zip(rows, gaps, strict=True):
        by_key.setdefault(row["sensor"], []).append(gap)
    errors = predictions("k.csv")
    assert [int(row["rows"]) for row in errors] == [len(by_key[row["key"]]) for row in errors]
    means = [float(row["mse"]) for row in errors]
    np.testing.assert_allclose(means, [np.mean(by_key[row["key"]]) for row in errors], rtol=1e-5)
    assert means == sorted(means, reverse=True) and len(errors) == 7
    assert f"largest error: {errors[0]['key']}: MSE" in shown.err
    last, controls = {}, []
    for row in rows:
        d = float(row["target"])
        controls.append((d - last.get(row["sensor"], 0.0)) ** 2)
        last[row["sensor"]] = d
    assert float(lines[3].split()[2]) == pytest.approx(np.mean(controls), rel=1e-4)
    # A file with the rows of one key alone has the same predictions.
    write_csv("one.csv", table().filter(pa.compute.equal(table()["sensor"], "s3")))
    assert main(["run", "one.csv", *MODEL, "--predictions", "one.p.csv"]) == 0
    alone = [row["prediction"] for row in predictions("one.p.csv")]
    assert alone == [row["prediction"] for row in rows if row["sensor"] == "s3"]


def test_every_format_gives_the_same_predictions(folder, monkeypatch):
    os.mkdir("parts")
    for part in range(3):
        pq.write_table(table()[200 * part : 200 * part + 200], f"parts/{part}.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in table().to_pylist())
    Path("t.jsonl").write_text(lines)
    pq.write_table(table(), "t.parquet")
    assert main(["run", "t.csv", *MODEL, "--predictions", "p.csv"]) == 0
    expected = [row["prediction"] for row in predictions()]
    for name in ("parts", "t.jsonl", "t.parquet"):
        assert main(["run", name, *MODEL, "--predictions", f"{name}.p.csv"]) == 0
        assert [row["prediction"] for row in predictions(f"{name}.p.csv")] == expected
    with open("t.csv", "rb") as file:
        command = [sys.executable, "-m", "jboost.cli", "run", "-", *MODEL, "--predictions", "-"]
        environment = os.environ | {"PYTHONPATH": str(Path(jb.__file__).parents[1])}
        done = subprocess.run(command, stdin=file, capture_output=True, env=environment, check=True)
    assert [line.split(",")[-1] for line in done.stdout.decode().splitlines()[1:]] == expected


ASKED = [
    *("--intervals", "0.8", "--predictions", "p.csv", "--explain", "w.csv"),
    *("--events", "e.jsonl"),
]


def of_key(path, key):
    """The lines of a file that belong to a key, without the number of the row and the key."""
    rows = (
        [json.loads(line) for line in Path(path).read_text().splitlines()]
        if path.endswith(".jsonl")
        else predictions(path)
    )
    return [
        {name: value for name, value in row.items() if name not in ("row", "sensor")}
        for row in rows
        if row.get("sensor", key) == key
    ]


def test_what_is_asked_of_a_run_is_had_for_each_key(folder, capsys):
    pictures = ["--plot", "p.png", "--report", "r.html"]
    assert main(["run", "t.csv", *MODEL, *ASKED, *pictures]) == 0
    shown = capsys.readouterr().err
    assert "0.8 intervals:" in shown and "what moves the predictions: 'a'" in shown
    assert "events: " in shown and " outside" in shown
    page = Path("r.html").read_text()
    for text in ("<h2>Keys</h2>", "<td>s3</td>", "<h2>Intervals</h2>", "<h2>Learners</h2>"):
        assert text in page
    assert page.count("data:image/png") == 4 and Path("p.png").read_bytes()[:4] == b"\x89PNG"
    found = {path: of_key(path, "s3") for path in ("p.csv", "w.csv", "e.jsonl")}
    assert all(found.values())
    # The rows of one key alone have the same predictions, bounds, parts, flags and events.
    write_csv("one.csv", table().filter(pa.compute.equal(table()["sensor"], "s3")))
    os.mkdir("alone")
    os.chdir("alone")
    assert main(["run", "../one.csv", *MODEL, *ASKED]) == 0
    assert {path: of_key(path, "s3") for path in found} == found


def test_a_run_that_goes_on_writes_the_same_bytes(folder, capsys):
    write_csv("half.csv", table()[:250])
    write_csv("rest.csv", table()[250:])
    os.mkdir("whole")
    os.chdir("whole")
    assert main(["run", "../t.csv", *MODEL, *ASKED, "--report", "r.html"]) == 0
    files = {path: Path(path).read_bytes() for path in ("p.csv", "w.csv", "e.jsonl")}
    page = Path("r.html").read_text()
    table_of = page[page.index("<h2>Errors") : page.index("<h2>Over time")]
    for how, file in (("--resume", "t.csv"), ("--append", "rest.csv")):
        os.mkdir(f"../{how}")
        os.chdir(f"../{how}")
        kept = [*MODEL, *ASKED, "--checkpoint", "kept", "--report", "r.html"]
        assert main(["run", "../half.csv", *kept]) == 0
        assert main(["run", f"../{file}", *kept, how]) == 0
        assert {path: Path(path).read_bytes() for path in files} == files
        page = Path("r.html").read_text()
        assert page[page.index("<h2>Errors") : page.index("<h2>Over time")] == table_of
    capsys.readouterr()
    for other, had in (
        (["--seed", "3"], "--seed 0"),
        (["--intervals", "0.5"], "--intervals 0.8"),
        (["--set", "m=4"], "--set m=3"),
        (["--model", "nlms"], "--model bsgd_ru"),
    ):
        wanted = ["--target", "y", "--key", "sensor", "--checkpoint", "kept", "--resume", *other]
        assert main(["run", "../t.csv", *wanted]) == 2
        assert f"the run to go on with has {had}" in capsys.readouterr().err


def test_a_forecast_has_a_picture_and_a_page(folder):
    wishes = ["--target", "y", "--key", "sensor", "--model", "nlms", "--horizon", "2"]
    assert main(["run", "t.csv", *wishes, "--plot", "p.png", "--report", "r.html"]) == 0
    assert "<h2>Keys</h2>" in Path("r.html").read_text()


def test_killed_and_resumed_is_the_same_run(folder):
    """The short version of experiments/bench/kill.py --keys."""
    whole = ["run", "t.csv", *MODEL, "--every", "2"]
    assert main([*whole, "--checkpoint", "whole", "--predictions", "whole.csv"]) == 0
    command = [sys.executable, slow_command.__file__, "2_000", *whole]
    command += ["--checkpoint", "c", "--predictions", "o.csv"]
    environment = os.environ | {"PYTHONPATH": str(Path(jb.__file__).parents[1])}
    for lines in (250, None):
        process = subprocess.Popen([*command, "--resume"], env=environment)
        while lines and process.poll() is None:
            time.sleep(0.01)
            if Path("o.csv").exists() and Path("o.csv").read_bytes().count(b"\n") > lines:
                process.send_signal(signal.SIGKILL)
                assert process.wait() == -signal.SIGKILL
                assert 0 < shards.read_manifest("c")[0]["position"]["row"] < ROWS
        process.wait()
    assert process.returncode == 0
    assert Path("o.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert main([*whole, "--checkpoint", "c", "--resume"]) == 0  # nothing is left to learn
    (left,), (right,) = ([*Path(name).glob("shard-*")] for name in ("c", "whole"))
    for name in ("words", "names"):
        np.testing.assert_array_equal(np.load(left)[name], np.load(right)[name])
    np.testing.assert_allclose(np.load(left)["column total"], np.load(right)["column total"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(["sensor"]), "t.parquet has no column 'sensor'; it has 'a', 'b', 'y'"),
        (
            lambda t: t.set_column(0, "sensor", pa.array([*t["sensor"].to_pylist()[:-1], None])),
            "row 600 of t.parquet has no 'sensor'; give it a key, or pass --bad-rows skip",
        ),
        (
            lambda t: t.set_column(0, "sensor", t["a"]),
            "t.parquet: the column 'sensor' must be text, bytes, whole numbers",
        ),
    ],
    ids=["no key column", "null key", "float keys"],
)
def test_hostile_tables_get_a_sentence(folder, capsys, change, message):
    pq.write_table(change(table()), "t.parquet")
    assert main(["run", "t.parquet", *MODEL]) == 3
    assert message in capsys.readouterr().err


def test_rows_without_a_key_can_be_left_out(folder, capsys):
    keys = [None if i % 100 == 5 else k for i, k in enumerate(table()["sensor"].to_pylist())]
    pq.write_table(table().set_column(0, "sensor", pa.array(keys)), "t.parquet")
    arguments = ["run", "t.parquet", *MODEL, "--bad-rows", "skip", "--predictions", "p.csv"]
    assert main(arguments) == 0
    assert "600 rows of 7 keys, 6 without a key" in capsys.readouterr().err
    assert len(predictions()) == 600
    # A block of which no row has a key comes first.
    keys = [None] * 300 + table()["sensor"].to_pylist()[300:]
    rows = table().set_column(0, "sensor", pa.array(keys))
    pq.write_table(rows, "t.parquet", row_group_size=300)
    found = ["--events", "e.jsonl", "--explain", "w.csv", "--plot", "p.png", "--intervals", "0.8"]
    assert main([*arguments, *found]) == 0
    assert "600 rows of 7 keys, 300 without a key" in capsys.readouterr().err
    assert [row["prediction"] for row in predictions()[:300]] == ["nan"] * 300
    events = Path("e.jsonl").read_text().splitlines()
    assert min(json.loads(line)["row"] for line in events) > 300


def test_strange_keys_lose_nothing_that_was_learned(folder, capsys):
    pq.write_table(table(), "t.parquet")
    kept = [*MODEL, "--checkpoint", "run"]
    assert main(["run", "t.parquet", *kept]) == 0
    strange = {
        "row 3 of u.parquet has no 'sensor'": pa.array(["s1", "s2", None]),
        "the column 'sensor' must be text": pa.array([0.5, 1.5, 2.5]),
        "neither numbers, texts nor times": pa.array([[1], [2], [3]]),
    }
    for message, keys in strange.items():
        pq.write_table(table(3).set_column(0, "sensor", keys), "u.parquet")
        assert main(["run", "u.parquet", *kept, "--append"]) == 3
        assert message in capsys.readouterr().err
    long = pa.array(["x" * 2**20, "s1", "y" * 2**20])
    pq.write_table(table(3).set_column(0, "sensor", long), "u.parquet")
    assert main(["run", "u.parquet", *kept, "--append", "--keys", "k.csv"]) == 0
    assert "603 rows of 9 keys" in capsys.readouterr().err
    csv.field_size_limit(2**21)
    rows = {row["key"][:2]: int(row["rows"]) for row in predictions("k.csv")}
    assert rows["xx"] == rows["yy"] == 1
    assert sum(rows.values()) == 603


def test_a_bad_key_loses_nothing_that_was_learned(folder, capsys):
    rows = table(1_000)
    keys = [*rows["sensor"].to_pylist()[:-1], None]
    pq.write_table(rows.set_column(0, "sensor", pa.array(keys)), "t.parquet", row_group_size=500)
    assert main(["run", "t.parquet", *MODEL, "--checkpoint", "run", "--every", "1"]) == 3
    pq.write_table(rows, "t.parquet", row_group_size=500)
    assert main(["run", "t.parquet", *MODEL, "--checkpoint", "run", "--resume"]) == 0
    assert "1,000 rows of 7 keys" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--key", "y"], "--key is 'y', which has another role"),
        (["--horizon", "2", "--events", "e.jsonl"], "--explain and --events are not for forecasts"),
        (["--checkpoint", "t.csv"], "t.csv is a file; with --key the run is kept in a folder"),
        (["--resume"], "--resume needs the --checkpoint to go on from"),
    ],
)
def test_wrong_options_are_refused(folder, capsys, arguments, message):
    assert main(["run", "t.csv", *MODEL, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_run_is_not_overwritten(folder, capsys):
    assert main(["run", "t.csv", *MODEL, "--checkpoint", "run"]) == 0
    assert main(["run", "t.csv", *MODEL, "--checkpoint", "run"]) == 2
    assert "run holds a run already; pass --resume" in capsys.readouterr().err
    assert main(["run", "t.csv", "--target", "y", "--checkpoint", "run"]) == 2
    assert "run is a folder; a run without --key is kept in a file" in capsys.readouterr().err
    assert main(["run", "t.csv", "--target", "y", "--keys", "k.csv"]) == 2


def test_a_forecast_for_each_key(folder, capsys):
    rng = np.random.default_rng(1)
    with open("f.csv", "w") as file:
        file.write("sensor,a,y\n")
        for t in range(60):
            for k in range(2):
                file.write(f"s{k},{rng.normal():.3f},{(k + 1) * (t % 3)}\n")
    wishes = ["--target", "y", "--key", "sensor", "--model", "nlms", "--horizon", "2"]
    assert main(["run", "f.csv", *wishes, "--predictions", "p.csv", "--checkpoint", "run"]) == 0
    assert "0." in capsys.readouterr().out.splitlines()[1]
    rows = predictions()
    assert [(row["key"], row["horizon"]) for row in rows] == [
        ("s0", "1"), ("s0", "2"), ("s1", "1"), ("s1", "2")
    ]  # fmt: skip
    assert main(["run", "f.csv", *wishes[:-1], "3", "--checkpoint", "run", "--resume"]) == 2
    assert "the run to go on with has --horizon 2" in capsys.readouterr().err
    kept = jb.Fleet(jb.Forecast(jb.NLMS(0.1), 2), 1)
    with pytest.raises(jb.CheckpointError, match="is of another fleet"):
        kept.load("run")


def test_known_columns_of_a_key_come_from_its_own_rows(folder, capsys):
    """Each key is forecast as by itself, from the columns of its own next rows; a cut changes
    nothing."""
    rng, H, n = np.random.default_rng(2), 2, 80
    plan, other = rng.random((n, 2)).round(3), rng.random((n, 2)).round(3)
    y = np.where(plan > 0.5, 3.0, 1.0) + np.arange(2)
    with open("f.csv", "w") as file:
        file.write("sensor,other,plan,y\n")
        for t in range(n):
            for k in range(2) if t % 3 else (1, 0):  # the keys do not come in turn
                answer = y[t, k] if t < n - 1 else ""  # the plan of the last row is known
                file.write(f"s{k},{other[t, k]},{plan[t, k]},{answer}\n")
    wishes = ["run", "f.csv", "--target", "y", "--key", "sensor", "--horizon", "2"]
    wishes += ["--known", "plan", "--predictions"]
    assert main([*wishes, "p.csv", "--checkpoint", "run"]) == 0
    rows = predictions()
    model = jb.Forecast(horizon=H, known=(1,), longest=400)
    for k in range(2):
        xs = with_known(np.column_stack([other[:, k], plan[:, k]]), (1,), H).astype(np.float32)
        ds = np.append(y[:-1, k], np.nan).astype(np.float32)
        state, _ = jb.run(model, xs, ds)
        of_key = [np.float32(row["prediction"]) for row in rows if row["key"] == f"s{k}"]
        assert of_key == [*np.asarray(model.forecast(state))]
    capsys.readouterr()
    resume = [*wishes, "again.csv", "--checkpoint", "run", "--resume"]
    assert main(resume) == 0 and predictions("again.csv") == predictions()
    assert main([*resume, "--append"]) == 2
    assert "--known with --key needs the whole file" in capsys.readouterr().err
    resume[resume.index("plan")] = "other"
    assert main(resume) == 2
    assert "the run to go on with has --known ['plan']" in capsys.readouterr().err
    wishes[wishes.index("plan")] = "plam"
    assert main([*wishes, "p.csv"]) == terminal.BAD_DATA
    assert "f.csv has no column 'plam'" in capsys.readouterr().err
