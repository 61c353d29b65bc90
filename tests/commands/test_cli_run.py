"""`jboost run`, `models` and `inspect`, as a user meets them: files, pipes, interruptions."""

from __future__ import annotations

import base64
import html.parser
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support import memory

import jboost as jb
from jboost import catalogue
from jboost.automatic import auto
from jboost.checkpoints import archive, checkpoint
from jboost.cli import main
from jboost.files import lines as text_lines
from jboost.files import predictions, sources
from jboost.running import run_file
from tests.support import slow_command

pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")

FAST = ["--model", "nlms"]  # compiles in no time
ROWS = 300


def table(rows: int = ROWS) -> np.ndarray:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 2)) * [10.0, 0.01] + [100.0, 0.0]
    y = 3 * x[:, 0] + 500 * x[:, 1] + rng.normal(size=rows)
    return np.column_stack([x, y]).astype(np.float32)


def csv(rows: int = ROWS) -> str:
    return "a,b,y\n" + "".join(f"{a!s},{b!s},{y!s}\n" for a, b, y in table(rows).astype(object))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """An empty folder with one file in it, read some lines at a time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 1500)
    (tmp_path / "data.csv").write_text(csv())
    return tmp_path


def run(*words: str) -> int:
    return main(["run", *words])


def predicted(path: str | Path) -> np.ndarray:
    lines = Path(path).read_text().splitlines()
    assert lines[0] == "row,target,prediction"
    return np.array([[float(cell or "nan") for cell in line.split(",")] for line in lines[1:]])


def test_the_table_and_the_predictions_are_those_of_a_run(folder: Path, capsys: Any) -> None:
    assert run("data.csv", "--target", "y", "--predictions", "out.csv", *FAST) == 0
    data = table()
    _, trace = jb.run(catalogue.named("nlms"), data[:, :2], data[:, 2])
    rows, target, made = predicted("out.csv").T
    np.testing.assert_array_equal(rows, np.arange(1, ROWS + 1))
    np.testing.assert_array_equal(target.astype(np.float32), data[:, 2])
    np.testing.assert_array_equal(made.astype(np.float32), trace.prediction)
    d = data[:, 2].astype(float)
    means = np.concatenate([[0.0], np.cumsum(d)[:-1] / np.arange(1, ROWS)])
    expected = {
        "nlms": np.mean((made - d) ** 2),
        "running mean": np.mean((means - d) ** 2),
        "last value": np.mean((np.concatenate([[0.0], d[:-1]]) - d) ** 2),
    }
    out, err = capsys.readouterr()
    assert err.startswith("jboost: 300 rows; ") and out.splitlines()[0].split()[0] == "MSE"
    assert [line.split("  ")[0] for line in out.splitlines()[1:]] == [*expected]
    for name, mse in expected.items():
        (line,) = (line for line in out.splitlines() if line.startswith(name))
        cells = [float(cell) for cell in line.removeprefix(name).split()]
        np.testing.assert_allclose(
            np.delete(cells, 2),
            [mse, mse**0.5, mse / expected["running mean"]],
            rtol=2e-3,
            atol=6e-4,
        )


def test_the_default_has_nothing_to_tune(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 2**20)
    Path("few.csv").write_text(csv(250))  # of one length, as it takes long to compile
    assert run("few.csv", "--target", "y") == 0
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if line.startswith("auto"))
    assert float(line.split()[-1]) < 0.6  # of the running mean's error
    assert repr(catalogue.resolve(None)) == repr(auto())
    small: Any = catalogue.named("auto_small", {"seed": "4"})
    assert repr(small) == repr(auto("small", seed=4))


def test_a_parquet_file_is_the_same(folder: Path, capsys: Any) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(dict(zip("aby", table().T, strict=True))), "data.parquet")
    for name in ("data.csv", "data.parquet"):
        assert run(name, "--target", "y", "--predictions", f"{name}.out", *FAST) == 0
    assert Path("data.csv.out").read_bytes() == Path("data.parquet.out").read_bytes()


class Parsed(html.parser.HTMLParser):
    """Tags, their attributes, and the text between them."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_picture_and_the_page(folder: Path, capsys: Any) -> None:
    Path("gaps.csv").write_text("a,<b>,colour,y\n" + "1,2,red,3\n,2,blue,4\n1,2,red,\n" * 20)
    command = ("gaps.csv", "--target", "y", *FAST, "--plot", "e.svg", "--report", "r.html")
    assert run(*command) == 0
    assert "20 without an answer" in capsys.readouterr().err
    assert "<svg" in Path("e.svg").read_text()
    text = Path("r.html").read_text()
    page = Parsed(text)
    words = " ".join(page.words)
    for expected in ("nlms on gaps.csv", "running mean", "text in 4 columns, 2 of them taken"):
        assert expected in words
    assert "<b>" in words and "filled in from the past" in words
    assert not re.search(r"https?:|//|@import|url\(", re.sub("base64,[A-Za-z0-9+/=]+", "", text))
    (source,) = (attributes["src"] for tag, attributes in page.tags if tag == "img")
    assert source is not None
    data = base64.b64decode(source.removeprefix("data:image/png;base64,"))
    with Image.open(io.BytesIO(data)) as image:
        assert min(image.size) > 300
        image.load()


def test_without_matplotlib_the_page_has_no_picture(
    folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run("data.csv", "--target", "y", *FAST, "--report", "r.html") == 0
    assert "No picture: matplotlib is missing" in Path("r.html").read_text()
    assert run("data.csv", "--target", "y", *FAST, "--plot", "e.png") == 1
    assert "e.png could not be written: matplotlib is missing" in capsys.readouterr().err


def test_interrupted_and_resumed_is_the_same_run(
    folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    model = ["--model", "bsgd_ru", "--set", "m=3"]
    whole = ["data.csv", "--target", "y", *model, "--predictions", "whole.csv"]
    assert run(*whole, "--checkpoint", "whole") == 0
    expected = capsys.readouterr().out
    write = predictions.Predictions.write

    def stop(self: Any, start: int, *rest: Any, **more: Any) -> None:
        write(self, start, *rest, **more)
        if start > 100:
            raise KeyboardInterrupt

    command = ["data.csv", "--target", "y", *model, "--predictions", "o.csv", "--checkpoint", "c"]
    monkeypatch.setattr(predictions.Predictions, "write", stop)
    assert run(*command) == 130
    err = capsys.readouterr().err
    monkeypatch.setattr(predictions.Predictions, "write", write)
    assert "go on with: jboost run data.csv --target y" in err and err.endswith("--resume\n")
    seen = json.loads(_inspected(capsys, "c"))["position"]
    written = len(predicted("o.csv"))
    assert 0 < seen < written < ROWS  # the last block was written and not yet counted
    again = err.strip().partition("go on with: jboost ")[2].split()
    assert main(again) == 0
    assert capsys.readouterr().out == expected
    assert Path("o.csv").read_bytes() == Path("whole.csv").read_bytes()
    for one, other in zip(_arrays("c"), _arrays("whole"), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run("data.csv", "--checkpoint", "c", "--resume") == 0  # nothing is left to do


def test_interrupted_before_the_first_row(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(predictions.Predictions, "write", stop)
    assert run("data.csv", "--target", "y", *FAST, "--predictions", "o.csv") == 130
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("jboost: interrupted after 0 rows; the run was not kept")
    assert Path("o.csv").read_text() == "row,target,prediction\n"


def _inspected(capsys: Any, path: str) -> str:
    capsys.readouterr()
    assert main(["inspect", path, "--json"]) == 0
    return capsys.readouterr().out


def _arrays(path: str) -> list[Any]:
    return jax.tree.leaves(checkpoint.load(path)[1])


def test_killed_and_resumed_is_the_same_run(folder: Path) -> None:
    """The short version of experiments/bench/kill.py."""
    Path("long.csv").write_text(csv(4_000))
    whole = ["run", "long.csv", "--target", "y", *FAST, "--every", "1"]
    assert main([*whole, "--checkpoint", "whole", "--predictions", "whole.csv"]) == 0
    command = [sys.executable, slow_command.__file__, "20_000", *whole]
    command += ["--checkpoint", "c", "--predictions", "o.csv"]
    environment = os.environ | {"PYTHONPATH": str(Path(jb.__file__).parents[1])}
    kills = 0
    for wanted in (1_500, None):
        process = subprocess.Popen([*command, "--resume"], env=environment)
        while wanted and process.poll() is None:
            time.sleep(0.01)
            if Path("o.csv").exists() and Path("o.csv").read_bytes().count(b"\n") > wanted:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
        process.wait()
    assert process.returncode == 0 and kills == 1
    assert Path("o.csv").read_bytes() == Path("whole.csv").read_bytes()
    for one, other in zip(_arrays("c"), _arrays("whole"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_in_a_pipe_every_line_is_answered_at_once(
    folder: Path, capfdbinary: Any, monkeypatch: Any
) -> None:
    command = [sys.executable, "-m", "jboost.cli", "run", "-", "--target", "y", *FAST]
    environment = os.environ | {"PYTHONPATH": str(Path(jb.__file__).parents[1])}
    process = subprocess.Popen(
        [*command, "--predictions", "-", "--checkpoint", "c"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=environment,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    lines = csv(6).splitlines()
    process.stdin.write(lines[0] + "\n")
    for number, line in enumerate(lines[1:], start=1):
        process.stdin.write(line + "\n")
        if number == 1:
            assert process.stdout.readline() == "row,target,prediction\n"
        row, target, _ = process.stdout.readline().split(",")
        assert (int(row), np.float32(target)) == (number, np.float32(line.split(",")[2]))
    process.stdin.close()
    assert process.stdout.read() == "" and "6 rows" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert process.wait() == 0
    Path("more.csv").write_text("\n".join(lines[:3]) + "\n")
    with open("more.csv") as more, monkeypatch.context() as within:
        within.setattr(sys, "stdin", more)
        again = ("-", "--predictions", "-", "--checkpoint", "c", "--resume")
        assert run(*again) == 0
    out, err = capfdbinary.readouterr()
    assert [line.split(b",")[0] for line in out.splitlines()] == [b"7", b"8"]
    assert b"8 rows" in err


def test_a_reader_of_predictions_that_leaves(folder: Path) -> None:
    command = [sys.executable, "-m", "jboost.cli", "run", "data.csv", "--target", "y", *FAST]
    environment = os.environ | {"PYTHONPATH": str(Path(jb.__file__).parents[1])}
    with subprocess.Popen(
        [*command, "--predictions", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("", 3, "data.csv is empty"),
        ("a,b,y\n", 3, "data.csv has a header, in line 1, and no rows"),
        (csv() + "1,2\n", 3, "data.csv, line 302 has 2 fields where the header has 3"),
        (csv() + "1,x,2\n", 3, "data.csv, line 302: 'x' in the column 'b' is not a number"),
        ("a;b;y\n1;2\n", 3, "data.csv, line 1 has one column, 'a;b;y'; is a semicolon the deli"),
        ("a,b\n1,2\n", 3, "data.csv has no column 'y'; it has 'a', 'b'"),
        ((csv() + "1,\xe9,2\n").encode("latin-1"), 3, "data.csv, line 302 is not in UTF-8"),
        ("a," * 1_000_000 + "y\n", 3, "data.csv, line 1 has 1,000,001 columns; at most 16,384"),
        ("when,y\n2020-13-01,1\n05/05/2011,2\n07/05/2011,3\n06/05/2011,3\n", 3,
         "data.csv: the column 'when' holds dates such as"),
    ],
)  # fmt: skip
def test_bad_data_is_one_sentence(
    folder: Path, capsys: Any, text: Any, status: int, message: str
) -> None:
    Path("data.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    command = ("data.csv", "--target", "y", *FAST, "--predictions", "o.csv", "--checkpoint", "c")
    assert run(*command) == status
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert last.startswith(f"jboost: error: {message}") and "Traceback" not in err and out == ""
    if "line 302" in message:  # what came before is whole, and the run can go on from there
        made = predicted("o.csv")
        assert 250 < len(made) <= ROWS and made[-1, 0] == len(made)
        Path("data.csv").write_text(csv())
        assert run(*command, "--resume") == 0
        assert len(predicted("o.csv")) == ROWS


def test_a_folder_a_missing_and_a_forbidden_file(
    folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    for name, words in ((".", "is a folder"), ("no.csv", "no.csv cannot be read: No such file")):
        assert run(name, "--target", "y", *FAST) == 3
        assert words in capsys.readouterr().err

    def forbidden(path: str, *_: Any) -> Any:  # root may read everything
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(sources, "open", forbidden, raising=False)
    assert run("data.csv", "--target", "y", *FAST) == 3
    assert capsys.readouterr().err == "jboost: error: data.csv cannot be read: Permission denied\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full disk to try")
def test_a_full_disk(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    command = ("data.csv", "--target", "y", *FAST, "--checkpoint", "c")
    assert run(*command, "--predictions", "/dev/full") == 1
    err = capsys.readouterr().err
    assert "predictions could not be written to /dev/full: No space left on device; c is not" in err

    class Full(io.FileIO):
        """A disk with room for 2,500 bytes, that takes what it can."""

        def write(self, data: Any) -> int:
            left = 2500 - self.tell()
            if left <= 0:
                raise OSError(28, "No space left on device")
            return super().write(data[:left])

    def limited(self: Any, *_: Any) -> Any:
        return Full(self.path, "w")

    monkeypatch.setattr(predictions.Predictions, "_open", limited)
    assert run(*command, "--predictions", "o.csv") == 1
    assert "could not be written to o.csv: No space left" in capsys.readouterr().err
    made = predicted("o.csv")
    assert len(made) == checkpoint.inspect("c")["position"] > 30
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run(*command, "--predictions", "o.csv", "--resume") == 0
    assert len(predicted("o.csv")) == ROWS


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full disk to try")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("models", "standard output could not be written: No space left on device"),
        ("run data.csv --target y --model nlms", "standard output could not be written: No space"),
        ("run data.csv --target y --model nlms --predictions -",
         "the predictions could not be written to standard output: No space left on device"),
        ("sweep data.csv --target y --model nlms --grid step_size=0.1,0.2 --table /dev/full",
         "/dev/full could not be written: No space left on device"),
    ],
)  # fmt: skip
def test_full_standard_output(folder: Path, words: str, message: str) -> None:
    with open(os.devnull if "/dev/full" in words else "/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jboost.cli", *words.split()], stdout=full,
            stderr=subprocess.PIPE, text=True, env=os.environ | memory.ENVIRONMENT,
        )  # fmt: skip
    assert done.returncode == 1 and f"jboost: error: {message}" in done.stderr
    assert "Traceback" not in done.stderr and "ignored" not in done.stderr


def test_where_no_checkpoint_can_be(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    real = os.open

    def refusing(path: Any, *rest: Any) -> int:
        if str(path).endswith(".lock"):
            raise OSError(30, "Read-only file system", path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refusing)
    assert run("data.csv", "--target", "y", *FAST, "--checkpoint", "c") == 1
    assert capsys.readouterr().err == "jboost: error: c: Read-only file system\n"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["data.csv"], 2, "--target is missing"),
        (["data.csv", "--target", "y", "--model", "bmn_wu"], 2, "did you mean 'bnm_wu'"),
        (["data.csv", "--target", "y", "--model", "sgd", "--set", "mu=1"], 2, "it has step_size"),
        (["data.csv", "--target", "y", "--model", "sgd", "--set", "step_size=x"], 2, "a number"),
        (["data.csv", "--target", "y", "--model", "sgd", "--set", "step_size=-1"], 2, "step_size"),
        (["data.csv", "--target", "y", "--resume"], 2, "--resume needs the --checkpoint"),
        (["data.csv", "--target", "y", "--checkpoint", "other"], 2, "exists already; pass"),
        (["data.csv", "--target", "y", "--checkpoint", "other", "--resume"], 1, "other is"),
        (["data.csv", "--target", "y", "--predictions", "data.csv"], 2, "is the file to learn"),
        (["data.csv", "--target", "y", "--delimiter", "::"], 2, "delimiter must be one character"),
        (["data.csv", "--target", "y", "--drop", "c"], 3, "has no column 'c'"),
        (["data.csv", "--target", "y", "--ordinal", "a=1"], 2, "at least two different values"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_sentence(
    folder: Path, capsys: Any, words: list[str], status: int, message: str
) -> None:
    Path("other").write_text("no checkpoint")
    assert run(*words) == status
    err = capsys.readouterr().err
    assert message in err and err.startswith("jboost: error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--set", "m"], "must be NAME=VALUE; got 'm'"),
        (["--report", "r.pdf"], "must end in one of .html"),
        (["--every", "0"], "from 1 on; got '0'"),
        (["--missing", "ignore"], "invalid choice: 'ignore'"),
    ],
)
def test_wrong_options_are_refused_at_once(
    folder: Path, capsys: Any, option: list[str], message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("data.csv", "--target", "y", *option)
    assert message in capsys.readouterr().err


def test_a_checkpoint_of_another_run_is_refused(folder: Path, capsys: Any) -> None:
    keep = ("--checkpoint", "c", "--predictions", "o.csv")
    assert run("data.csv", "--target", "y", *FAST, *keep) == 0
    capsys.readouterr()
    for words, message in [
        (["--target", "b"], "predicts 'y', and --target is 'b'"),
        (["--model", "sgd"], "is of another model"),
    ]:
        assert run("data.csv", *words, *keep, "--resume") != 0
        assert message in capsys.readouterr().err
    Path("short.csv").write_text("y,b,a\n1,2,3\n")
    assert run("short.csv", *keep, "--resume") == 3
    err = capsys.readouterr().err
    assert "short.csv has 1 rows, and the run to go on with had seen 300" in err
    assert "the run so far was on data.csv; short.csv is taken to have the same rows" in err
    Path("other.csv").write_text("y,b\n1,2\n")
    assert run("other.csv", *keep, "--resume") == 3
    assert "other.csv has no column 'a'" in capsys.readouterr().err
    os.rename("o.csv", "predictions.csv")
    assert run("data.csv", *keep, "--resume") == 1
    assert "o.csv is not there: name the file that" in capsys.readouterr().err
    made = Path("predictions.csv").read_bytes()
    for notes in (b"", b"my,own\n" * 10_000, made[:-20], made.replace(b"\n300,", b"\n299,")):
        Path("o.csv").write_bytes(notes)
        assert run("data.csv", *keep, "--resume") == 1
        assert "o.csv does not hold the 300 predictions" in capsys.readouterr().err
        assert Path("o.csv").read_bytes() == notes  # somebody's file, left alone
    Path("o.csv").write_bytes(made + b"301,1")  # cut off while it was written
    assert run("data.csv", *keep, "--resume") == 0
    assert Path("o.csv").read_bytes() == made
    assert run("data.csv", "--target", "y", *FAST, "--checkpoint", "new", "--resume") == 0
    assert "there is no new yet: the run begins with the first row" in capsys.readouterr().err
    jb.save("bare", jb.SGD(0.1), jb.SGD(0.1).init(2))
    assert run("data.csv", "--checkpoint", "bare", "--resume") == 1
    assert "bare was not written by jboost run" in capsys.readouterr().err


def test_a_column_that_is_never_used_is_named(folder: Path, capsys: Any) -> None:
    """Nanoseconds since 1970 are numbers, but beyond those that are."""
    rows = [f"{i % 7},{1_700_000_000_000_000_000 + i},{i % 3}" for i in range(50)]
    Path("when.csv").write_text("\n".join(["y,when,a", *rows]))
    assert run("when.csv", "--target", "y", *FAST) == 0
    assert "50 rows, no number that can be used (below 1e15) in 'when'" in capsys.readouterr().err


def test_a_model_that_does_not_fit_is_refused_at_once(folder: Path, capsys: Any) -> None:
    Path("wide.csv").write_text(
        ",".join(f"c{i}" for i in range(4_000)) + ",y\n" + "text," * 4_000 + "1"
    )
    assert run("wide.csv", "--target", "y", "--model", "newton") == 1
    assert re.search(r"num_features=64,000 would take [\d,]+ bytes", capsys.readouterr().err)


def test_a_checkpoint_that_cannot_be_written_is_refused_at_once(
    folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 2**22)

    def wide(length: int) -> None:
        names = ",".join(f"{i:05}{'n' * (length - 5)}" for i in range(6_000))
        Path("wide.csv").write_text(f"{names},y\n" + ("1," * 6_000 + "2\n") * 3)

    keep = ("wide.csv", "--target", "y", *FAST, "--checkpoint", "c", "--predictions", "o.csv")
    Path("o.csv").write_text("what was there")
    wide(800)
    assert run(*keep) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert re.match(r"jboost: error: the description takes 5,\d+,\d+ bytes, and a checkpoint", err)
    assert "c is not there: no row was kept" in err
    assert Path("o.csv").read_text() == "what was there" and not Path("c").exists()
    wide(400)
    assert run(*keep) == 0
    assert run(*keep, "--resume") == 0


@pytest.mark.parametrize("spare", [-2_000, 2_000])
def test_accounts_that_grow_still_fit_into_the_checkpoint(
    spare: int, folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    """A run that begins also ends, and is resumed, however near it is to the limit."""
    words = (
        "data.csv", "--target", "y", "--model", "bsgd_wu", "--intervals", "0.9", "--report",
        "r.html", "--checkpoint",
    )  # fmt: skip
    sizes: list[int] = []
    encode = archive.encode

    def measured(*args: Any, **options: Any) -> bytes:
        sizes.append(len(encode(*args, **options)))
        return encode(*args, **options)

    monkeypatch.setattr(archive, "encode", measured)
    Path("data.csv").write_text(csv(1_500))
    assert run(*words, "c") == 0
    assert max(sizes) - sizes[0] < run_file.ROOM
    monkeypatch.setattr(archive, "LARGEST_HEADER", sizes[0] + run_file.ROOM + spare)
    assert run(*words, "d") == (1 if spare < 0 else 0)
    if spare > 0:
        Path("data.csv").write_text(csv(1_600))
        assert run(*words, "d", "--resume") == 0


def test_missing_inputs_by_each_policy(folder: Path, capsys: Any) -> None:
    Path("gaps.csv").write_text(csv(40) + ",1,2\n" + csv(5).partition("\n")[2])
    for policy, status, words in [
        ("impute", 0, "46 rows;"),
        (
            "skip",
            0,
            "46 rows, 1 of them nothing was learned from, 1 without an answer or an input;",
        ),
        ("raise", 3, "gaps.csv, line 42: the value of 'a' is missing"),
    ]:
        assert run("gaps.csv", "--target", "y", *FAST, "--missing", policy) == status
        assert words in "".join(capsys.readouterr())


def test_models_are_listed_with_their_settings(capsys: Any) -> None:
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    for name, entry in catalogue.CATALOGUE.items():
        assert f"{name}: {entry.summary}" in out
        for setting, own in entry.settings.items():
            assert re.search(rf"  {setting}={own.default} +{re.escape(own.allowed)} ", out)
    assert main(["models", "nlms"]) == 0
    assert capsys.readouterr().out.startswith("nlms: ")
    assert main(["models", "nothing"]) == 2
    assert "there is no model 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("name", catalogue.CATALOGUE)
def test_every_named_model_can_be_made_and_takes_its_defaults_as_text(name: str) -> None:
    entry = catalogue.CATALOGUE[name]
    texts = {key: str(own.default) for key, own in entry.settings.items()}
    made: Any = catalogue.named(name)
    again: Any = catalogue.named(name, texts, impute=False)
    assert made.takes_missing and again.takes_missing == entry.raw
    assert repr(made.learner) == repr(again.learner)


def test_inspect_says_what_a_file_holds(folder: Path, capsys: Any) -> None:
    assert run("data.csv", "--target", "y", *FAST, "--checkpoint", "c") == 0
    capsys.readouterr()
    assert main(["inspect", "c"]) == 0
    out = capsys.readouterr().out
    for words in ("rows seen   300", "target      y", "columns     a, b", "step_size 0.1"):
        assert words in out
    jb.save("bare", jb.SGD(0.1), jb.SGD(0.1).init(2))
    assert main(["inspect", "bare"]) == 0
    assert "rows seen   unknown" in capsys.readouterr().out
    for name, words in (("none", "cannot be read: No such file"), ("data.csv", "data.csv is")):
        assert main(["inspect", name]) == 1
        assert words in capsys.readouterr().err


def test_sweep_finds_what_single_runs_find(folder: Path, capsys: Any) -> None:
    data = table()
    steps = ("0.01", "0.2")
    errors = [
        float(jb.mse(catalogue.named("nlms", {"step_size": step}), data[:, :2], data[:, 2]))
        for step in steps
    ]
    grid = ["--grid", f"step_size={','.join(steps)}"]
    assert main(["sweep", "data.csv", "--target", "y", *FAST, *grid, "--table", "t.csv"]) == 0
    out = capsys.readouterr().out
    best = steps[int(np.argmin(errors))]
    assert f"best: --set step_size={best} (MSE " in out and "300 rows of data.csv" in out
    head, *rows = (line.split(",") for line in Path("t.csv").read_text().splitlines())
    found = [float(row[head.index("mse")]) for row in rows]
    np.testing.assert_allclose(found, errors, rtol=1e-3)
    for words, status, message in [
        (["--grid", "mu=1,2"], 2, "nlms has no setting 'mu'; it has step_size"),
        (["--grid", "step_size=1,x"], 2, "step_size must be a number; got 'x'"),
        (["--grid", "step_size=1,3"], 2, "step_size"),
    ]:
        assert main(["sweep", "data.csv", "--target", "y", *FAST, *words]) == status
        assert message in capsys.readouterr().err
    before = Path("data.csv").read_bytes()
    assert main(["sweep", "data.csv", "--target", "y", *FAST, *grid, "--table", "data.csv"]) == 2
    assert "data.csv is the file to learn and the file of --table" in capsys.readouterr().err
    assert Path("data.csv").read_bytes() == before
