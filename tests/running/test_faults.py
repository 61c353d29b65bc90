"""What is left of a run when disks, pipes, memory and other processes fail it, and what it says."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.checkpoints.checkpoint import inspect, read
from jboost.cli import main
from jboost.commands import run as command
from jboost.core import model
from jboost.running import stream as driver
from jboost.running.stream import run_stream

pytest.importorskip("pyarrow")

MODEL = jb.SGD(step_size=0.1)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 3)).astype(np.float32)
D = X @ np.float32([1.0, -2.0, 0.5])
LINES = [f"{a},{b},{y}\n" for a, b, y in RNG.normal(size=(40, 3)).round(3).tolist()]
HEAD = "a,b,y\n"


def blocks(rows: int = 10, end: Exception | None = None) -> Iterator[Any]:
    """The stream, and what becomes of it half-way."""
    for start in range(0, 100, rows):
        if end is not None and start == 50:
            raise end
        yield X[start : start + rows], D[start : start + rows]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> int:
    return main(["run", *words, "--target", "y", "--model", "nlms", "--checkpoint", "c"])


def leaves(path: str) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(read(path).state)]


def assert_as_if_nothing_happened(lines: list[str]) -> None:
    """The checkpoint is that of one run over these lines."""
    Path("whole.csv").write_text(HEAD + "".join(lines))
    whole = ["run", "whole.csv", "--target", "y", "--model", "nlms", "--checkpoint", "whole"]
    assert main(whole) == 0
    assert inspect("c")["position"] == len(lines)
    for one, other in zip(leaves("c"), leaves("whole"), strict=True):
        np.testing.assert_array_equal(one, other)


@contextmanager
def piped(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, fed and read by pipes."""
    program = [sys.executable, "-m", "jboost.cli", "run", "-", "--target", "y", "--model", "nlms"]
    environment = os.environ | {"PYTHONPATH": str(Path(jb.__file__).parents[1])}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*program, "--checkpoint", "c", "--every", "1", "--predictions", *words],
        stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1, env=environment,
    ) as process:  # fmt: skip
        yield process


def feed(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def until_kept(rows: int) -> None:
    patience = time.monotonic() + 20
    while not Path("c").exists() or inspect("c")["position"] != rows:
        assert time.monotonic() < patience
        time.sleep(0.01)


# --- two processes -------------------------------------------------------------------------------


def test_a_second_process_is_refused_and_changes_nothing(folder: Path, capsys: Any) -> None:
    Path("data.csv").write_text(HEAD + "".join(LINES))
    with piped("-") as first:
        feed(first, HEAD + LINES[0])
        answer(first), answer(first)
        feed(first, LINES[1])
        answer(first)
        until_kept(2)
        Path("o.csv").write_text("what another run wrote\n")
        kept = Path("c").read_bytes()
        for resume in (["--resume"], []):
            assert run("data.csv", "--predictions", "o.csv", *resume) in (1, 2)
            err = capsys.readouterr().err
            assert err.startswith("jboost: error: c") and err.count("\n") == 1
            assert ("Another process writes to this file" in err) == bool(resume)
        with pytest.raises(BlockingIOError, match="Another process"):
            run_stream(read("c").model, (X, D), checkpoint="c", resume=True)
        assert Path("c").read_bytes() == kept
        assert Path("o.csv").read_text() == "what another run wrote\n"
        feed(first, LINES[2])
        first.communicate()
    assert first.returncode == 0
    assert_as_if_nothing_happened(LINES[:3])


@pytest.mark.parametrize("before", [0, 10])
def test_a_process_that_came_between(
    before: int, folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    """It begins and ends after we have read the file, and before we claim it."""
    Path("data.csv").write_text(HEAD + "".join(LINES[:before]))
    words = ("data.csv", "--predictions", "o.csv", "--resume")
    if before:
        assert run(*words) == 0
    Path("data.csv").write_text(HEAD + "".join(LINES))
    outcome = command._outcome

    def other_first(*args: Any) -> Any:
        monkeypatch.setattr(command, "_outcome", outcome)
        assert run("data.csv", "--resume") == 0
        return outcome(*args)

    monkeypatch.setattr(command, "_outcome", other_first)
    assert run(*words) == 1
    assert "c was written by another process; start again" in capsys.readouterr().err
    assert not before or Path("o.csv").read_text().count("\n") == 1 + before
    assert_as_if_nothing_happened(LINES)


# --- what no file can hold -----------------------------------------------------------------------


@model
class Unsavable(jb.Learner):
    """Its state is of a dtype that no checkpoint holds."""

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> Any:
        return jnp.zeros(num_features, jnp.int4)

    def predict(self, state: Any, x: Any) -> Any:
        return x[0]

    def learn(self, state: Any, sample: Any) -> Any:
        return state


@pytest.mark.parametrize(
    ("learner", "extra", "message"),
    [
        (Unsavable(), {}, "must be of dtype .*; got int4"),
        (MODEL, {"a": "x" * 2**22}, "the description takes 4,19.,... bytes"),
        (MODEL, {"a": object()}, "extra must be a dict that JSON can hold"),
    ],
)
def test_a_run_that_no_file_can_hold_is_refused_before_it_learns(
    learner: Any, extra: dict[str, Any], message: str, tmp_path: Path
) -> None:
    stream = run_stream(learner, blocks(), checkpoint=tmp_path / "c", ahead=0)
    stream.extra |= extra
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        stream.finish()
    assert stream.state is None and stream.position == 0 and not os.listdir(tmp_path)
    assert caught.value.__notes__ == [f"{tmp_path}/c is not there: no row was kept"]


# --- memory --------------------------------------------------------------------------------------


def test_a_block_that_does_not_fit_into_memory(tmp_path: Path) -> None:
    rows = 10**14  # beyond any address space; here it takes no memory yet
    wide = np.broadcast_to(X[0], (rows, 3)), np.broadcast_to(D[0], rows)
    stream = run_stream(MODEL, iter([(X, D), wide]), checkpoint=tmp_path / "c")
    with pytest.raises(MemoryError, match="begins at row 100 does not fit into memory") as caught:
        stream.finish()
    assert caught.value.__notes__ == [f"{tmp_path}/c holds the first 100 rows"]
    assert read(tmp_path / "c").position == stream.position == 100


@pytest.mark.parametrize("ahead", [0, 1])
def test_results_that_do_not_fit_into_memory(ahead: int) -> None:
    """Of the first block there is a result, whether or not the second had begun."""

    def much(state: Any, info: Any) -> Any:
        return jnp.zeros(10**10, np.float32)

    stream = run_stream(MODEL, iter([(X, D)]), observe=much, ahead=ahead)
    with pytest.raises(MemoryError, match="begins at row 0 does not fit"):
        next(stream)
    assert stream.position == 0 and stream.state is None


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_block_that_fails_does_not_take_the_one_before_along(
    ahead: int, monkeypatch: Any
) -> None:
    """Whether or not it had begun when the one before was handed over."""
    begin, begun = driver.StreamRun._begin, []

    def second_fails(self: Any, block: Any) -> Any:
        begun.append(block.start)
        if block.start:
            raise MemoryError("the second")
        time.sleep(0.2 * ahead)  # for the next block to be there
        return begin(self, block)

    monkeypatch.setattr(driver.StreamRun, "_begin", second_fails)
    stream = run_stream(MODEL, blocks(50), ahead=ahead)
    assert len(next(stream).prediction) == 50
    assert begun == ([0, 50] if ahead else [0])
    with pytest.raises(MemoryError, match="the second"):
        next(stream)
    assert stream.position == 50


def test_want_of_memory_is_a_sentence_of_the_command(
    folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    Path("data.csv").write_text(HEAD + "".join(LINES))
    monkeypatch.setattr("jboost.files.lines.BLOCK_BYTES", 200)
    monkeypatch.setattr("jboost.running.blocks._copy", scarce := Scarce())
    assert run("data.csv") == 1
    err = capsys.readouterr().err
    kept = inspect("c")["position"]
    assert 0 < kept == scarce.rows < len(LINES)
    assert f"data.csv: the block that begins at row {kept} does not fit into memory" in err
    assert err.endswith(f"; c holds the first {kept} rows\n") and "Traceback" not in err
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run("data.csv", "--resume") == 0
    assert_as_if_nothing_happened(LINES)


class Scarce:
    """Memory for two blocks."""

    def __init__(self) -> None:
        from jboost.running import blocks

        self.copy, self.left, self.rows = blocks._copy, 2, 0

    def __call__(self, start: int, xs: Any, *rest: Any) -> Any:
        if not self.left:
            raise MemoryError("Unable to allocate")
        self.left -= 1
        self.rows += len(xs)
        return self.copy(start, xs, *rest)


def test_wide_rows_make_short_blocks(tmp_path: Path, monkeypatch: Any) -> None:
    from jboost.files import sources, tables

    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"x{i}": X[:, i % 3] for i in range(20)} | {"y": D}
    pq.write_table(pa.table(columns), tmp_path / "wide", row_group_size=64)
    monkeypatch.setattr(tables, "BLOCK_NUMBERS", 140)
    parts = list(sources.read(tmp_path / "wide", "y"))
    assert {len(d) for _, d in parts[:-1]} == {7}
    np.testing.assert_array_equal(np.concatenate([d for _, d in parts]), D)


# --- pipes ---------------------------------------------------------------------------------------


def test_a_reader_that_dies_costs_no_row_that_it_read(folder: Path, monkeypatch: Any) -> None:
    with piped("-") as process:
        feed(process, HEAD + LINES[0])
        assert answer(process) == "row,target,prediction\n"
        for number in range(1, 6):
            assert answer(process).startswith(f"{number},")
            feed(process, LINES[number])
        answer(process)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        feed(process, LINES[6])  # learned, but nobody took the prediction
        said = process.stderr.read()
    assert process.returncode == 141
    assert said == "jboost: the reader of the output left; c holds the first 6 rows\n"
    Path("rest.csv").write_text(HEAD + "".join(LINES[6:]))
    with open("rest.csv") as rest:
        monkeypatch.setattr(sys, "stdin", rest)
        assert run("-", "--resume") == 0
    assert_as_if_nothing_happened(LINES)


def test_a_writer_that_dies_within_a_line(folder: Path) -> None:
    with piped("o.csv") as process:
        feed(process, HEAD + "".join(LINES[:4]))
        out, said = process.communicate("0.5,0")
    assert process.returncode == 3 and out == ""
    sentence = "jboost: error: standard input, line 6 has 2 fields where the header has 3"
    sentence += "; correct it, or pass --bad-rows skip"
    assert said.splitlines()[-1] == f"{sentence}; c holds the first 4 rows"
    assert Path("o.csv").read_text().count("\n") == 5
    assert_as_if_nothing_happened(LINES[:4])


# --- disks ---------------------------------------------------------------------------------------


@contextmanager
def room(size: int) -> Iterator[None]:
    """Files can grow to so many bytes, as on a disk that is full then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("predictions", [[], ["--predictions", "o.csv"]])
def test_a_full_disk_leaves_the_old_state(
    predictions: list[str], folder: Path, capsys: Any
) -> None:
    Path("data.csv").write_text(HEAD + "".join(LINES[:10]))
    with room(500):
        assert run("data.csv") == 1
    err = capsys.readouterr().err
    assert err.startswith("jboost: error: c: File too large; nothing was written")
    assert err.endswith("; c is not there: no row was kept\n") and err.count("\n") == 1
    assert run("data.csv", *predictions) == 0
    kept, written = Path("c").read_bytes(), [Path(name).read_bytes() for name in predictions[1:]]
    Path("data.csv").write_text(HEAD + "".join(LINES))
    capsys.readouterr()
    with room(500):
        assert run("data.csv", *predictions, "--resume") == 1
    err = capsys.readouterr().err
    assert "File too large" in err and err.endswith("; c holds the first 10 rows\n")
    assert Path("c").read_bytes() == kept and not list(folder.glob(".jboost*"))
    assert written == [Path(name).read_bytes() for name in predictions[1:]]
    assert run("data.csv", *predictions, "--resume") == 0
    assert_as_if_nothing_happened(LINES)


def refused_file(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refused_folder(descriptor: int) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize(
    ("fsync", "words", "rows"),
    [
        (None, "the line is dead", 50),
        (refused_file, "what was there before is untouched", 20),
        (refused_folder, "the new file is in place", 30),
    ],
)
def test_the_error_says_which_rows_the_file_holds(
    fsync: Any, words: str, rows: int, tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "c"
    run_stream(MODEL, (X[:20], D[:20]), checkpoint=path).finish()
    source = blocks(end=ConnectionError("the line is dead"))
    stream = run_stream(MODEL, source, checkpoint=path, every=1, resume=True)
    if fsync is not None:
        monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=words) as caught:
        stream.finish()
    monkeypatch.undo()
    assert caught.value.__notes__ == [f"{path} holds the first {rows} rows"]
    assert read(path).position == rows
    again = run_stream(MODEL, blocks(), checkpoint=path, resume=True).finish()
    np.testing.assert_array_equal(again.state.w, jb.run(MODEL, X, D)[0].w)


def test_the_error_of_a_loop_says_it_too(tmp_path: Path) -> None:
    path = tmp_path / "c"

    def loop(after: int) -> None:
        with run_stream(MODEL, blocks(), checkpoint=path, resume=True) as stream:
            for part in stream:
                json.dumps({"rows": object() if part.start >= after else 0})

    with pytest.raises(TypeError, match="not JSON") as caught:
        loop(0)
    assert caught.value.__notes__ == [f"{path} is not there: no row was kept"]
    with pytest.raises(TypeError, match="not JSON") as caught:
        loop(30)
    assert caught.value.__notes__ == [f"{path} holds the first 30 rows"]
    with pytest.raises(TypeError) as caught, run_stream(MODEL, blocks()) as stream:
        json.dumps(stream)
    assert not hasattr(caught.value, "__notes__")  # nothing was to be kept


def test_a_file_that_somebody_else_ruined(tmp_path: Path) -> None:
    path = tmp_path / "c"

    def loop() -> None:
        with run_stream(MODEL, blocks(), checkpoint=path) as stream:
            next(stream)
            path.write_bytes(b"something else")  # no lock keeps out who does not ask for it
            json.dumps(stream)

    with pytest.raises(TypeError) as caught:
        loop()
    assert caught.value.__notes__ == [f"{path} cannot be read now"]
