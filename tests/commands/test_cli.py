"""The `jboost` command and its demo, as a user meets them."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest
from support import memory

import jboost as jb
from jboost import plots
from jboost.cli import main
from jboost.core.progress import Progress
from jboost.paper import demo

LENGTH = 300


@pytest.fixture(scope="module")
def said():
    return []


@pytest.fixture(scope="module")
def results(said):
    class Heard(Progress):
        def add(self, count, label=""):
            said.append(label)

    return demo.compare(LENGTH, progress=Heard("demo"))


@pytest.fixture
def undrawn(monkeypatch):
    """Where pictures would have gone."""
    names = []
    monkeypatch.setattr(demo, "picture", lambda results: None)
    monkeypatch.setattr(plots, "save", lambda figure, path: names.append(str(path)))
    return names


@pytest.fixture
def quick(results, monkeypatch, tmp_path):
    """The demo without its computation, in an empty folder."""
    monkeypatch.setattr(demo, "compare", lambda length, progress: results)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def single_sgd(length):
    """Plain NumPy: the errors of SGD with step 0.1 on the Duffing map, from its definition."""
    before, now, w, errors = 0.9279, 0.1727, np.zeros(3), []
    for _ in range(length):
        after = 2.75 * now - now**3 - 0.2 * before
        x = np.array([before, now, 1.0])
        errors.append(after - w @ x)
        w = w + 0.1 * errors[-1] * x
        before, now = now, after
    return np.array(errors)


def test_records(results, said):
    assert len(results) == 14
    names = {(row.algorithm, row.combiner) for row in results}
    heard = {name if combiner == "none" else f"{name}, {combiner}" for name, combiner in names}
    assert {*said[:14]} == heard and said[14:] == [""]
    assert {row.algorithm for row in results if row.combiner == "none"} == {"SGD", "NM"}
    by = {(row.algorithm, row.combiner): row for row in results}
    assert len(by) == 14
    np.testing.assert_allclose(by["SGD", "none"].mse, np.mean(single_sgd(LENGTH) ** 2), rtol=1e-4)
    for row in results:
        assert row.ase.shape == (LENGTH,)
        assert np.isfinite(row.ase).all()
        assert row.mse == row.ase[-1]
        assert row.ratio == row.mse / by[row.single, "none"].mse
        assert row.microseconds > 0
        if row.combiner != "none":
            # The combiner has no say in how the learners learn.
            np.testing.assert_allclose(row.mean_lam, by[row.algorithm, "NSGD"].mean_lam, rtol=1e-5)
            expected = {"WU": 20, "RU": 20 * row.mean_lam}.get(row.algorithm[-2:])
            if expected is None:  # ceil(5 λ) of each learner
                assert 100 * row.mean_lam <= row.updates <= 100
            else:
                np.testing.assert_allclose(row.updates, expected, rtol=0.05)


def test_demo_prints_a_table_and_saves_a_picture(quick, results, capsys):
    assert main(["demo", "--length", str(LENGTH), "--out", "ase.png"]) == 0
    out = capsys.readouterr().out
    for row in results:
        assert any(row.algorithm in line and f"{row.mse:.4f}" in line for line in out.splitlines())
    assert "ase.png" in out.splitlines()[-1]
    with pytest.importorskip("PIL.Image").open("ase.png") as image:
        assert min(image.size) > 600
    assert max(map(len, out.splitlines()[:-1])) <= 88


def test_demo_without_matplotlib_still_prints_its_table(quick, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo"]) == 0
    out, _ = capsys.readouterr()
    assert "BNM-RU" in out
    assert 'pip install "jboost[plot]"' in out
    assert not list(quick.iterdir())
    assert main(["demo", "--out", "asked-for.png"]) == 1


def test_a_full_disk_is_one_sentence(quick, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(demo, "picture", lambda results: None)
    monkeypatch.setattr(plots, "save", full)
    assert main(["demo", "--out", "a.svg"]) == 1
    out, err = capsys.readouterr()
    assert "BNM-RU" in out
    assert err.startswith("jboost: error: the picture could not be written to a.svg: No space left")
    assert err.count("\n") == 1


def test_interrupted(quick, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "compare", stop)
    assert main(["demo"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_terminal_without_greek_letters(quick, undrawn, monkeypatch):
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    assert main(["demo"]) == 0
    ascii_only.flush()
    assert b"mean ?" in ascii_only.buffer.getvalue()
    assert undrawn == ["jboost-demo.png"]  # by default, where one stands


def test_progress_rewrites_one_line_on_a_terminal(results, undrawn, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def compare(length, progress):
        progress.total = 3
        progress.compiling()
        progress.add(1, "SGD")
        return results

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(demo, "compare", compare)
    assert main(["demo"]) == 0
    assert "\n" not in screen.getvalue()
    assert screen.getvalue() == "\r\x1b[Kdemo: compiling…\r\x1b[K"  # the rest came too soon


def test_a_reader_that_leaves_early():
    command = [sys.executable, "-m", "jboost.cli", "models"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == 141, errors
    assert "Traceback" not in errors


def made_up(*ratios):
    curve = np.ones(2)
    rows = [demo.Result(f"B{i}", "NSGD", "SGD", r, r, 1, 1, 1, curve) for i, r in enumerate(ratios)]
    return [demo.Result("SGD", "none", "SGD", 1.0, 1.0, 1, 1, 1, curve), *rows]


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ((1.1, 1.8), ["0 of 2", "1.10 to 1.80", "does not hold"]),
        ((0.9, 0.8), ["2 of 2", "0.80 to 0.90", "claim holds here"]),
        ((0.9, 1.0), ["1 of 2", "0.90 to 1.00", "holds in part"]),
    ],
)
def test_the_verdict_follows_the_numbers(ratios, words):
    (line,) = demo.verdict(made_up(*ratios))
    assert all(word in line for word in words)


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"jboost {jb.__version__}\n"


def test_python_m_jboost_is_the_command():
    for words, status in ((["models", "nlms"], 0), (["nonsense"], 2)):
        done, same = (
            subprocess.run(
                [sys.executable, "-m", module, *words],
                capture_output=True,
                text=True,
                env=os.environ | memory.ENVIRONMENT,
            )
            for module in ("jboost", "jboost.cli")
        )
        assert (done.returncode, done.stdout, done.stderr) == (status, same.stdout, same.stderr)
        assert "nlms: " in done.stdout or "usage: jboost" in done.stderr


@pytest.mark.parametrize("command", ["", "demo", "run", "sweep", "models", "inspect"])
def test_help_has_an_example_and_fits_a_terminal(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([*command.split(), "--help"])
    out = capsys.readouterr().out
    _, _, examples = out.partition("examples:")
    assert f"jboost {command or 'demo'}" in examples
    assert max(map(len, out.splitlines())) <= 80
    if not command:
        assert "exit status:" in out


def test_no_command_is_wrong_usage_and_shows_help(capsys):
    assert main([]) == 2
    assert "usage: jboost" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["nonsense"], ["nonsense", "demo"]),
        (["demo", "--length", "0"], ["--length", "from 2", "'0'"]),
        (["demo", "--length", "many"], ["--length", "whole number", "'many'"]),
        (["demo", "--length", "1000000000000"], ["--length", "to 10000000"]),
        (["demo", "--out", "a.docx"], ["--out", ".png", "'a.docx'"]),
        (["demo", "--out", "no-such-folder/a.png"], ["--out", "'no-such-folder'", "not exist"]),
        (["demo", "--out", "folder.png"], ["--out", "'folder.png'", "is a folder"]),
        (["demo", "--colour", "red"], ["unrecognized arguments: --colour"]),
    ],
)
def test_wrong_usage_says_what_and_exits_with_2(command, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(SystemExit, match="2"):
        main(command)
    err = capsys.readouterr().err
    assert all(word in err for word in words)
