"""What a terminal of 80 columns shows while `jboost` works, and that nothing else shows it.

The order of the texts is tested, and no time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import jboost as jb
from jboost.checkpoints import checkpoint
from jboost.cli import main
from jboost.commands import learning, options
from jboost.core import progress
from jboost.engine import cache as caches
from jboost.engine import executables
from jboost.files import lines as text_lines
from jboost.running import stream

pytest.importorskip("pyarrow")

COLUMNS = 80
FAST = ["--target", "y", "--model", "nlms"]
LIVE = r"\d+%, [\d,]+ rows, [\d,]+ rows/s, about \d+ s left, MSE [\d.e+-]+, lately [\d.e+-]+"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """A folder with a file of 2,000 rows, read some hundred at a time; every text is shown."""
    x = np.random.default_rng(3).normal(size=(2000, 2))
    lines = (f"{a:.4f},{b:.4f},{a - b:.4f}\n" for a, b in x)
    (tmp_path / "data.csv").write_text("a,b,y\n" + "".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 8000)
    monkeypatch.setattr(progress, "PAUSES", (0.0, 10.0))
    return tmp_path


class Terminal:
    """Standard error is a pseudo-terminal within the block; ``shown`` are the texts of its line."""

    def __enter__(self) -> Terminal:
        self._read, self.number = pty.openpty()
        fcntl.ioctl(self.number, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self._written = bytearray()
        self._reader = threading.Thread(target=self._fill, daemon=True)
        self._reader.start()
        self._before, sys.stderr = sys.stderr, open(self.number, "w")
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.close()
        sys.stderr = self._before
        self._reader.join(60.0)
        os.close(self._read)
        self.shown = self._written.decode().replace("\r\n", "\n").split("\r\x1b[K")
        passing = (text for text in self.shown if not text.startswith("jboost: "))
        assert all(len(line) < COLUMNS for text in passing for line in text.split("\n"))

    def _fill(self) -> None:
        with contextlib.suppress(OSError):  # nobody can write to it any more
            while data := os.read(self._read, 65536):
                self._written += data

    def in_order(self, *patterns: str) -> None:
        """Some texts fit the first pattern, the next ones the second, and so on to the last."""
        number = -1
        for text in filter(None, self.shown):
            if number < 0 or not re.fullmatch(patterns[number], text):
                number += 1
                assert number < len(patterns) and re.fullmatch(patterns[number], text), text
        assert number == len(patterns) - 1


COMPILING = r"compiling…( \d+ s)?"
SUMMARY = r"jboost: 2,000 rows; [\d,]+ rows/s\n"


def test_a_run_says_that_it_compiles_then_how_far_it_is(folder: Path) -> None:
    with Terminal() as terminal:
        assert main(["run", "data.csv", *FAST]) == 0
    terminal.in_order(COMPILING, LIVE, SUMMARY)
    lines = [text for text in terminal.shown if "%" in text]
    rows = [int(line.split()[1].replace(",", "")) for line in lines]
    assert rows == sorted(rows) and rows[0] <= learning.FIRST_ROWS and rows[-1] == 2000
    assert lines[-1].startswith("100%, ")


def test_a_long_line_is_cut_with_intervals_too(folder: Path) -> None:
    with Terminal() as terminal:
        assert main(["run", "data.csv", *FAST, "--intervals", "0.9"]) == 0
    assert any(re.fullmatch(r"\d+%, .* lately .*…", text) for text in terminal.shown)


def test_compiling_is_said_before_the_program_is_compiled(folder: Path, monkeypatch: Any) -> None:
    order, parts = [], ((progress.Progress, "compiling"), (stream, "begin"))
    for where, name in parts:
        before = getattr(where, name)

        def noted(*args: Any, name: str = name, before: Any = before) -> Any:
            order.append(name)
            return before(*args)

        monkeypatch.setattr(where, name, noted)
    assert main(["run", "data.csv", *FAST]) == 0
    assert order[:2] == ["compiling", "begin"]


def test_the_rate_does_not_count_the_compiler(folder: Path, monkeypatch: Any) -> None:
    """The clock stands still but for an hour in which the program is compiled."""
    now, rates = [0.0], []
    monkeypatch.setattr("jboost.commands.outcome.time.perf_counter", lambda: now[0])
    warm_up = learning.StreamRun.warm_up

    def slowly(stream: Any) -> None:
        now[0] += 3600.0
        warm_up(stream)

    monkeypatch.setattr(learning.StreamRun, "warm_up", slowly)
    line = learning.outcome.live_line

    def live_line(done: Any, total: float | None) -> str:
        now[0] += 1.0
        rates.append(done.rate * (len(rates) + 1) / done.rows)
        return line(done, total)

    monkeypatch.setattr(learning.outcome, "live_line", live_line)
    assert main(["run", "data.csv", *FAST]) == 0
    np.testing.assert_allclose(rates, 1.0)


def test_a_sweep_reads_compiles_and_counts(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "SHORT", 0.0)
    steps = ",".join(map(str, np.linspace(0.1, 0.9, 9)))
    with Terminal() as terminal:
        assert main(["sweep", "data.csv", *FAST, "--grid", f"step_size={steps}"]) == 0
    read, counted = r"reading data.csv, \d+%, [\d,]+ rows", r"sweep: \d+%, \d of 9 runs, \d+ s"
    compiling, counting = f"sweep: {COMPILING}", rf"{counted}(, about \d+ s left)?"
    terminal.in_order(read, compiling, counting, rf"{counted}\n")


def test_tune_compiles_and_counts(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "SHORT", 0.0)
    xs, ds = jb.streams.duffing(200)
    with Terminal() as terminal:
        _, history = jb.tune(jb.SGD(0.05), xs, ds, steps=4, windows=2)
    count = r"tune: \d+%, \d of \d evaluations, \d+ s"
    line = rf"{count}(, about \d+ s left)?; error [\d.e-]+"
    terminal.in_order(f"tune: {COMPILING}", line, rf"{count}\n")
    n = len(history.value)
    assert f"100%, {n} of {n} evaluations" in terminal.shown[-1]


def test_nothing_is_shown_where_there_is_no_terminal(folder: Path, capfd: Any) -> None:
    assert main(["run", "data.csv", *FAST]) == 0
    assert main(["sweep", "data.csv", *FAST, "--grid", "step_size=0.1,0.2"]) == 0
    xs, ds = jb.streams.duffing(200)
    jb.tune(jb.SGD(0.05), xs, ds, steps=2)
    assert re.fullmatch(SUMMARY, capfd.readouterr().err)


def test_predictions_on_the_terminal_are_not_written_into_the_line(folder: Path) -> None:
    command = [sys.executable, "-m", "jboost", "run", "data.csv", *FAST, "--predictions", "-"]
    with Terminal() as terminal:
        done = subprocess.run(command, stdout=terminal.number, stderr=terminal.number)
    text, *_ = terminal.shown
    assert done.returncode == 0 and text.startswith("row,target,prediction\n1,")


def test_a_block_is_the_same_block_in_a_run_that_goes_on(folder: Path, monkeypatch: Any) -> None:
    """Errors are added up block by block: the blocks of a resumed run are those of a whole one."""
    monkeypatch.setattr(learning, "FIRST_ROWS", 16)
    monkeypatch.setattr(learning, "MOST_ROWS", 100)
    monkeypatch.setattr(learning, "CALLS", 0)
    ends: list[int] = []
    line = learning.outcome.live_line

    def live_line(done: Any, total: float | None) -> str:
        ends.append(done.rows)
        if len(ends) == stop:
            raise KeyboardInterrupt
        return line(done, total)

    monkeypatch.setattr(learning.outcome, "live_line", live_line)
    words, stop = ["run", "data.csv", *FAST], 0
    assert main([*words, "--checkpoint", "whole"]) == 0
    blocks, stop = ends.copy(), 7
    assert blocks[:4] == [16, 32, 64, 128] and max(np.diff(blocks)) == 100
    ends.clear()
    assert main([*words, "--checkpoint", "cut"]) == 130
    stop = 0
    assert main([*words, "--checkpoint", "cut", "--resume"]) == 0
    assert [*dict.fromkeys(ends)] == blocks
    whole, cut = (checkpoint.inspect(name)["extra"] for name in ("whole", "cut"))
    assert whole["stream"] == cut["stream"]
    assert whole["caller"]["tally"] == cut["caller"]["tally"]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: Any) -> Any:
    """The folder of compiled programs; JAX's settings are put back afterwards."""
    names = ["jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs",
             "jax_persistent_cache_min_entry_size_bytes"]  # fmt: skip
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setenv(caches.VARIABLE, str(tmp_path / "programs"))
    monkeypatch.setattr(caches, "SOONEST", 0.0)
    yield tmp_path / "programs"
    for name, value in before.items():
        jax.config.update(name, value)
    caches.cache("off")


def run_anew() -> int:
    jax.clear_caches()
    return main(["run", "data.csv", *FAST])


@pytest.mark.filterwarnings("default")
def test_programs_are_kept_and_mended(
    folder: Path, programs: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(executables, "KNOWN", False)  # JAX alone keeps programs
    assert run_anew() == 0
    first = capsys.readouterr()
    kept = {file: file.read_bytes() for file in programs.glob("jit_*")}
    assert first.err.count("\n") == 1 and kept
    for number, (file, content) in enumerate(kept.items()):
        half = content[: len(content) // 2]
        file.write_bytes((half, bytes(99) + content, half + bytes(len(half)))[number % 3])
    assert run_anew() == 0
    out, err = capsys.readouterr()
    assert err.count("\n") == 2 and err.startswith("jboost: kept programs are damaged, and ")
    assert out == first.out
    assert run_anew() == 0  # they were written again
    assert "damaged" not in capsys.readouterr().err
    assert main(["cache"]) == 0
    size = r"\d+ compiled programs, [\d.]+ MB, in "
    assert re.fullmatch(rf"{size}{re.escape(str(programs))}\n", capsys.readouterr().out)
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.startswith("0 compiled programs, 0.0 MB, in ")
    assert not [*programs.iterdir()]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("trouble", ["a file", "no home", "written by others", "full disk", "off"])
def test_no_trouble_with_the_cache_ends_a_run(
    folder: Path, programs: Path, trouble: str, monkeypatch: Any, capsys: Any
) -> None:
    if trouble == "a file":
        programs.touch()
    elif trouble == "no home":
        for name in (caches.VARIABLE, "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    elif trouble == "written by others":
        monkeypatch.setattr(caches.os, "access", lambda *_: False)
    elif trouble == "full disk":
        write = Path.write_bytes

        def full(path: Path, data: bytes) -> int:
            if path.parent == programs:
                raise OSError(28, "No space left on device")
            return write(path, data)

        monkeypatch.setattr(Path, "write_bytes", full)
        jax.clear_caches()
    else:
        monkeypatch.setenv(caches.VARIABLE, "off")
    assert main(["run", "data.csv", *FAST]) == 0
    out, err = capsys.readouterr()
    assert "ratio to mean" in out
    lines = [] if trouble == "off" else ["jboost: compiled programs are not kept: "]
    assert [line[: len(lines[0])] for line in err.splitlines()[:-1]] == lines
    status = main(["cache"])
    assert status == (0 if trouble in ("off", "full disk") else 1)


def test_what_others_warn_of_is_shown_as_ever(programs: Path) -> None:
    with pytest.warns(UserWarning, match="something else"), options.keeping_programs():
        warnings.warn("something else", stacklevel=1)


@pytest.mark.filterwarnings("default")
def test_the_folder_of_a_user_of_jax_is_left_alone(
    folder: Path, programs: Path, tmp_path: Path, capsys: Any
) -> None:
    theirs = tmp_path / "theirs"
    jax.config.update("jax_compilation_cache_dir", str(theirs))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()
    assert run_anew() == 0
    files = [*theirs.glob("jit_*")]
    for file in files:
        file.write_bytes(b"damaged")
    capsys.readouterr()
    assert run_anew() == 0 and main(["cache", "--clear"]) == 0
    assert capsys.readouterr().err.count("\n") == 2
    assert files and all(file.read_bytes() == b"damaged" for file in files)
    assert not programs.exists()
