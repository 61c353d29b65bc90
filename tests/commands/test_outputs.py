"""No output of a command overwrites another, its input, or what another process writes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import memory
from support.small_table import write_table

from jboost.cli import main
from jboost.files.predictions import Predictions

pytest.importorskip("pyarrow")

RUN = ["run", "data.csv", "--target", "y", "--model", "nlms"]
SWEEP = ["sweep", "data.csv", "--target", "y", "--model", "nlms", "--grid", "step_size=0.1,0.2"]
# The options that write a file, with a name that each of them takes.
OUTPUTS = {"--checkpoint": "o", "--predictions": "o", "--explain": "o", "--plot": "o.svg"}
OUTPUTS |= {"--report": "o.html"}  # --events is opened as --explain is, by the same checks
KINDS = ["same", "absolute", "around", "through a linked folder", "link", "hard link"]
CASES = [
    *((RUN, *pair, kind) for pair in itertools.combinations(OUTPUTS, 2) for kind in KINDS
      if pair != ("--plot", "--report") or kind.endswith("link")),  # their names end differently
    *((SWEEP, "--table", "--plot", kind) for kind in KINDS),
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    write_table("data.csv")
    return tmp_path


def contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}


def other_name(path: str, kind: str, suffix: str) -> str:
    """Another name of a file that exists, or will; a link ends in ``suffix``."""
    match kind:
        case "same":
            return path
        case "absolute":
            return os.path.abspath(path)
        case "around":
            Path("sub").mkdir(exist_ok=True)
            return f"sub/../{path}"
        case "through a linked folder":
            Path("here").symlink_to(".")
            return f"here/{path}"
        case "hard link":
            Path(path).write_text("what was there")
            os.link(path, f"link{suffix}")
            return f"link{suffix}"
    Path(f"link{suffix}").symlink_to(path)
    return f"link{suffix}"


@pytest.mark.parametrize(("command", "first", "second", "kind"), CASES)
def test_two_outputs_in_one_file_are_refused(
    command: list[str], first: str, second: str, kind: str, capsys: Any
) -> None:
    suffix = Path(OUTPUTS[second]).suffix
    name = OUTPUTS[first] if first == "--plot" else OUTPUTS[second]
    words = [first, name, second, other_name(name, kind, suffix)]
    if kind == "hard link" and first == "--checkpoint":
        words.append("--resume")
    before = contents()
    assert main([*command, *words]) == 2
    out, err = capsys.readouterr()
    assert f"is the file of {first} and the file of {second}; write to different files" in err
    assert err.count("\n") == 1 and out == "" and contents() == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", [*OUTPUTS])
def test_the_input_is_no_output(option: str, kind: str, capsys: Any) -> None:
    name = f"data{Path(OUTPUTS[option]).suffix}"
    os.rename("data.csv", name)
    before = Path(name).read_bytes()
    other = other_name(name, kind, Path(name).suffix)
    Path(name).write_bytes(before)
    words = ["run", name, *RUN[2:], option, other]
    assert main([*words, *(["--resume"] if option == "--checkpoint" else [])]) == 2
    assert f"is the file to learn and the file of {option}" in capsys.readouterr().err
    assert Path(name).read_bytes() == before


def test_outputs_that_differ_are_written() -> None:
    words = [word for option, name in OUTPUTS.items() for word in (option, f"{option[2]}{name}")]
    assert main([*RUN, *words]) == 0
    assert {*os.listdir()} == {"data.csv", "co", "po", "eo", "po.svg", "ro.html"}
    assert main([*RUN, "--predictions", "/dev/null", "--checkpoint", "d"]) == 0


def test_standard_output_in_the_file_of_an_output(folder: Path) -> None:
    """And two streams in one file, which is what `2>&1` makes of them."""
    command = [sys.executable, "-m", "jboost.cli", *RUN]
    environment: Any = {"env": os.environ | memory.ENVIRONMENT, "stderr": subprocess.PIPE}
    with open("o.html", "ab") as out:
        done = subprocess.run([*command, "--report", "o.html"], stdout=out, **environment)
    assert done.returncode == 2
    assert b"o.html is the file of standard output and the file of --report" in done.stderr
    before = Path("data.csv").read_bytes()
    with open("data.csv", "ab") as out:
        done = subprocess.run(command, stdout=out, **environment)
    assert done.returncode == 2 and Path("data.csv").read_bytes() == before
    assert b"data.csv is the file to learn and the file of standard output" in done.stderr
    with open("log", "ab") as out:
        done = subprocess.run(command, stdout=out, env=environment["env"], stderr=out)
    assert done.returncode == 0 and "40 rows" in Path("log").read_text()


# --- two processes -------------------------------------------------------------------------------


@contextmanager
def piped(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A run over a pipe, which has answered the first row and waits for the next."""
    command = [sys.executable, "-m", "jboost.cli", "run", "-", *RUN[2:]]
    with subprocess.Popen(
        [*command, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
        env=os.environ | memory.ENVIRONMENT, stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write("a,y\n1,2\n")
        while not Path("o.csv").exists() or Path("o.csv").read_text().count("\n") < 2:
            assert process.poll() is None, process.stderr.read()
        yield process


def test_what_a_process_writes_is_held_until_it_ends(capsys: Any) -> None:
    with piped("--predictions", "o.csv", "--report", "o.html") as first:
        os.link("o.csv", "hard.csv")
        for words in (
            ["--predictions", "o.csv"],
            ["--predictions", "hard.csv"],
            ["--report", "o.html"],
            ["--predictions", "o.html"],
            ["--checkpoint", "o.html"],
        ):
            before = contents()
            assert main([*RUN, *words]) == 1
            err = capsys.readouterr().err
            assert err.startswith("jboost: error: ") and words[1] in err and err.count("\n") == 1
            assert "Another process writes to this file; wait for it or choose another" in err
            assert contents() == before
        assert main([*SWEEP, "--table", "o.csv"]) == 1
        assert main([*RUN, "--predictions", "free.csv"]) == 0
        _, err = first.communicate("3,4\n")
        assert first.returncode == 0, err
    assert Path("o.csv").read_text().count("\n") == 3
    assert not [name for name in os.listdir() if name.startswith(".jboost")]


def test_a_killed_process_holds_nothing() -> None:
    with piped("--predictions", "o.csv", "--report", "o.html") as first:
        first.kill()
    assert main([*RUN, "--predictions", "o.csv", "--report", "o.html"]) == 0
    assert Path("o.csv").read_text().count("\n") == 41
    assert not [name for name in os.listdir() if name.startswith(".jboost")]


def test_predictions_are_held_without_the_command() -> None:
    with Predictions("o.csv") as first:
        first.write(0, np.ones(2), np.ones(2))
        before = Path("o.csv").read_bytes()
        with pytest.raises(BlockingIOError, match=r"Another process.*o\.csv"):
            Predictions("o.csv")
        assert Path("o.csv").read_bytes() == before
    with Predictions("o.csv"):
        assert Path("o.csv").read_text() == "row,target,prediction\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_file_that_is_writable_in_a_folder_that_is_not(folder: Path) -> None:
    Path("sub").mkdir()
    Path("sub/o.csv").touch()
    Path("sub").chmod(0o500)
    try:
        assert main([*RUN, "--predictions", "sub/o.csv"]) == 0
    finally:
        Path("sub").chmod(0o700)
