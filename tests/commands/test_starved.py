"""The command without standard streams, descriptors or memory: a sentence and an exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import memory
from support.small_table import write_table

from jboost import cli, limits
from jboost.commands import models

pytest.importorskip("pyarrow")
resource = pytest.importorskip("resource")

RUN = ["run", "data.csv", "--target", "y", "--model", "nlms"]
KEPT = ["--checkpoint", "c", "--predictions", "o.csv", "--report", "r.html"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    write_table("data.csv")
    return tmp_path


def shell(before: str, words: list[str], after: str = "") -> tuple[int, str, str]:
    """The exit status of the command in a shell, and what it wrote."""
    command = [sys.executable, "-m", "jboost", *words]
    done = subprocess.run(
        ["sh", "-c", f'{before} "$@" {after}', "sh", *command], stdin=subprocess.DEVNULL, text=True,
        capture_output=True, env=os.environ | memory.ENVIRONMENT,
    )  # fmt: skip
    assert "Traceback" not in done.stderr and "Fatal" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "closed", "status", "sentence"),
    [
        (RUN, ">&-", 1, "standard output is closed, and results go there: redirect it to a file"),
        (["--help"], ">&-", 1, "standard output is closed"),
        ([*RUN, "--predictions", "-"], "<&- >&-", 1, "standard output is closed"),
        (["run", "-", *RUN[2:]], "<&-", 3, "standard input is closed"),
        (["run", "-", *RUN[2:]], "0>write-only", 3, "cannot be read: Bad file descriptor"),
        ([*RUN, "--predictions", "-"], "1</dev/null", 1, "standard output: Bad file descriptor"),
    ],
)
def test_closed_streams(words: list[str], closed: str, status: int, sentence: str) -> None:
    found, _, err = shell("exec", words, closed)
    assert found == status and err.startswith("jboost: error: ") and err.count("\n") == 1
    assert sentence in err


@pytest.mark.parametrize("closed", ["<&- 2>&-", "2</dev/null"])
def test_a_run_needs_no_other_stream(closed: str) -> None:
    """And none of its files gets the number of a stream, into which anybody may write."""
    assert shell("exec", [*RUN, *KEPT], closed)[0] == 0
    assert Path("o.csv").read_text().count("\n") == 41
    assert Path("r.html").read_text().startswith("<!")
    assert cli.main(["inspect", "c"]) == 0
    assert {*os.listdir()} == {"data.csv", "c", "o.csv", "r.html"}


def test_the_sentence_of_an_error_that_nobody_can_read() -> None:
    assert shell("exec", ["run", "none.csv", *RUN[2:]], "<&- 2>&-")[0] == 3
    assert shell("exec", ["models"], "<&- >&- 2>&-")[0] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold to the limit")
@pytest.mark.parametrize("megabytes", [60, 100, 300, 500, 1000, 1500, 2000, 2600, 3000])
def test_too_few_addresses(megabytes: int) -> None:
    """Without the sentence: tracebacks, crashes within JAX, or a process that hangs."""
    for words in (RUN, ["models"]):
        status, out, err = shell(f"ulimit -v {megabytes * 1000};", words)
        assert status == 1 and out == "" and err.count("\n") == 1
        assert err.startswith("jboost: error: this process may have ")
        assert "GB of addresses" in err and "ulimit -v" in err


@pytest.mark.parametrize("files", [6, 8, 15])
def test_too_few_descriptors(files: int) -> None:
    status, _, err = shell(f"ulimit -n {files};", RUN)
    assert status == 1 and err.count("\n") == 1
    assert err.startswith(f"jboost: error: this process may open {files} files")


def test_enough_of_both() -> None:
    needed = limits.ADDRESSES + limits.ADDRESSES_PER_CORE * (os.cpu_count() or 1)
    status, _, err = shell(f"ulimit -n 16; ulimit -v {needed // 1024};", [*RUN, *KEPT])
    assert status == 0 and "40 rows" in err


@pytest.mark.parametrize(
    ("argv", "original", "is_command"),
    [
        (["/usr/bin/jboost", "run"], ["python", "/usr/bin/jboost", "run"], True),
        (["-m", "run"], ["python", "-m", "jboost", "run"], True),
        (["-m"], ["python", "-X", "dev", "-m", "jboost.cli"], True),
        (["-m"], ["python", "-m", "other", "-m", "jboost"], False),
        (["other.py"], ["python", "other.py"], False),
        ([""], ["python"], False),
        ([], ["python"], False),
    ],
)
def test_other_programs_are_left_alone(
    argv: list[str], original: list[str], is_command: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", original)
    assert limits.is_command() == is_command
    monkeypatch.delattr(sys, "argv")  # as in a program that embeds Python
    assert not limits.is_command()


def test_systems_without_limits(monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "resource", None)
    assert limits.shortage() is None and limits.memory() == float("inf")


def test_a_model_beyond_the_limit_is_refused(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "memory", lambda: 30.0)
    assert cli.main(RUN) == 1
    assert "with 1 columns this model takes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [MemoryError(), MemoryError("Unable to allocate"), RuntimeError("can't start new thread"),
     RuntimeError("RESOURCE_EXHAUSTED: Out of memory")],
)  # fmt: skip
def test_memory_that_runs_out(error: Exception, capsys: Any, monkeypatch: Any) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(models, "known_model", fail)
    assert cli.main(["models", "nlms"]) == 1
    assert capsys.readouterr().err.startswith("jboost: error: there is not enough memory: ")
