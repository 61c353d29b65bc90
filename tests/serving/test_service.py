"""A service: what it has acknowledged is in its state, once, in order, to the last bit."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.serving import Local, features, logged, run_of, same_bits, stream

import jboost as jb
from jboost.cli import main
from jboost.serving import log as logs
from jboost.serving import members, service
from jboost.serving.log import Entry, Limits, Log, Question
from jboost.serving.refusal import Refusal
from jboost.serving.rows import Row

pytest.importorskip("pyarrow")


def feed(local: Local, xs: Any, ds: Any, start: int = 0) -> list[float]:
    """Ask and answer each row; return the predictions."""
    predictions = []
    for i, (x, d) in enumerate(zip(xs, ds, strict=True), start):
        predictions.append(local.ask(f"row {i}", features(x))["prediction"])
        assert local.answer(f"row {i}", float(d)) == {"learned": True}
    return predictions


@pytest.mark.parametrize("model", ["newton", "bsgd_ru"])
def test_a_crash_loses_no_bit(tmp_path: Path, model: str) -> None:
    xs, ds = stream(90)
    local = Local(tmp_path, model, every=20)
    predictions = feed(local, xs[:30], ds[:30])
    local.crash()
    local = Local(tmp_path)
    predictions += feed(local, xs[30:60], ds[30:60], 30)
    local.stop()
    local = Local(tmp_path)
    predictions += feed(local, xs[60:], ds[60:], 60)
    state, trace = run_of(model, xs, ds)
    assert same_bits(local.state, state)
    np.testing.assert_array_equal(np.float32(predictions), trace.prediction)
    tally = local.stream.accounts[model].tally
    assert tally.scored == 90 and local.stream.served.count == 90
    error = np.square(np.float64(trace.prediction) - ds).mean()
    assert tally.mse[model] == pytest.approx(error) == local.stream.served.mse
    local.stop()
    _, kept_state, _ = jb.load(tmp_path / f"{model}.{model}.run")
    assert same_bits(kept_state, state)


def test_the_order_of_the_answers_is_that_of_the_run(tmp_path: Path) -> None:
    xs, ds = stream(40)
    local = Local(tmp_path)
    for i in range(40):
        local.ask(str(i), features(xs[i]))
    order = np.random.default_rng(1).permutation(40)
    for i in order.tolist():
        local.answer(str(i), float(ds[i]))
    assert same_bits(local.state, run_of("newton", xs[order], ds[order])[0])
    local.crash()
    assert [name for _, _, name in logged(tmp_path)] == [str(i) for i in order]


def test_batches_and_single_rows_give_the_same_bits(tmp_path: Path) -> None:
    xs, ds = stream(50)
    local = Local(tmp_path, intervals=0.9)
    local.do(
        [Row(features(x), None, float(d)) for x, d in zip(xs[:30], ds[:30], strict=True)], True
    )
    for x, d in zip(xs[30:], ds[30:], strict=True):
        local.answer(None, float(d), features(x))
    assert same_bits(local.state, run_of("newton", xs, ds, 0.9)[0])
    reply = local.ask(None, features(xs[0]))
    low, high = reply["interval"]
    assert low < reply["prediction"] < high
    local.stop()


def test_a_repeated_answer_is_learned_once(tmp_path: Path) -> None:
    xs, ds = stream(3)
    local = Local(tmp_path)
    local.ask("a", features(xs[0]))
    for answer in (float(ds[0]), 99.0):
        assert local.answer("a", answer) == {"learned": True}
    assert local.answer("b", float(ds[1]), features(xs[1])) == {"learned": True}
    assert local.answer("b", float(ds[1]), features(xs[1])) == {"learned": True}
    local.crash()
    local = Local(tmp_path)
    assert local.answer("a", 7.0) == local.answer("b", 7.0) == {"learned": True}
    twice = [Row(features(xs[2]), "c", float(ds[2]))] * 2
    assert local.do(twice, learn=True) == [{"learned": True}] * 2
    assert same_bits(local.state, run_of("newton", xs, ds)[0])
    local.stop()


def test_an_open_question_is_replaced_and_an_answered_one_not_reopened(tmp_path: Path) -> None:
    xs, ds = stream(2)
    local = Local(tmp_path)
    local.ask("a", features(xs[1]))
    local.ask("a", features(xs[0]))
    local.answer("a", float(ds[0]))
    assert "prediction" in local.ask("a", features(xs[1]))
    local.answer("a", 5.0)
    assert local.service.log.open("newton") == 0
    assert same_bits(local.state, run_of("newton", xs[:1], ds[:1])[0])
    local.stop()


def test_a_refused_request_changes_nothing(tmp_path: Path) -> None:
    xs, ds = stream(3)
    local = Local(tmp_path)
    local.ask("a", features(xs[0]))
    before = local.state
    good = Row(None, "a", float(ds[0]))
    for rows, words in (
        ([good, Row(None, "never asked", 1.0)], "row 2: there is no open question"),
        ([good, Row({"u": 1.0, "other": 2.0}, None, 1.0)], "no column 'other'"),
        ([good, Row({"u": "text"}, None, 1.0)], "'u' must be a number"),
        ([good, Row({"u": 10**400}, None, 1.0)], "too large"),
        ([good, Row({"u": 1.0, "y": 2.0}, None, 1.0)], "'y' is the target"),
    ):
        with pytest.raises(Refusal, match=words):
            local.do(rows, learn=True)
    assert local.state is before and local.service.log.open("newton") == 1
    assert local.answer("a", float(ds[0])) == {"learned": True}
    assert same_bits(local.state, run_of("newton", xs[:1], ds[:1])[0])
    local.stop()


def test_the_first_request_fixes_the_columns(tmp_path: Path) -> None:
    local = Local(tmp_path, most_features=3)
    for values, words in (
        ({}, "at least one column"),
        ({"y": 1.0}, "'y' is the target"),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "a row may have 3 features; got 4"),
        ({"": 1.0}, "the name of a column"),
    ):
        with pytest.raises(Refusal, match=words):
            local.ask(None, values)
    with pytest.raises(Refusal, match="no open question"):
        local.answer("a", 1.0)
    with pytest.raises(Refusal, match="row 2: there is no open question"):
        local.do([Row({"other": 1.0}, None, 1.0), Row(None, "never asked", 1.0)], learn=True)
    assert local.stream.now.leading.columns is None  # a refused request fixes nothing
    local.ask("a", {"n": 1.5, "t": "2024-01-02T03:04:05", "c": "red"})
    local.crash()
    local = Local(tmp_path)
    columns = local.stream.now.leading.columns
    assert columns is not None
    assert [c.kind for c in columns.inputs] == ["number", "time", "category"]
    assert local.answer("a", 1.0) == {"learned": True}
    with pytest.raises(Refusal, match="is no time like iso"):
        local.ask(None, {"t": "yesterday"})
    local.stop()


def test_texts_and_times_are_those_of_a_file(tmp_path: Path, monkeypatch: Any) -> None:
    """Rows of any kind, answered out of order: the state of a run over the same rows as a file."""
    rng = np.random.default_rng(2)
    rows = [
        {"day": f"2024-01-{1 + i // 4:02d}T{6 * (i % 4):02d}:00:00", "n": round(rng.normal(), 3),
         "city": str(rng.choice(["Rome", "Oslo", "Lima"])), "open": bool(rng.integers(2))}
        for i in range(40)
    ]  # fmt: skip
    answers = rng.normal(size=40).round(3).tolist()
    monkeypatch.chdir(tmp_path)
    header = ",".join([*rows[0], "y"])
    lines = [
        ",".join([*map(str, row.values()), str(d)]) for row, d in zip(rows, answers, strict=True)
    ]
    text = "\n".join([header, *lines]).replace("True", "true").replace("False", "false") + "\n"
    Path("first.csv").write_text("".join(text.splitlines(keepends=True)[:21]))
    Path("all.csv").write_text(text)
    command = ["--target", "y", "--model", "newton", "--checkpoint"]
    assert main(["run", "first.csv", *command, "first.run"]) == 0
    assert main(["run", "first.csv", *command, "all.run"]) == 0
    Path("rest.csv").write_text("\n".join([header, *text.splitlines()[21:]]) + "\n")
    assert main(["run", "rest.csv", "--checkpoint", "all.run", "--append"]) == 0

    local = Local(tmp_path / "state")
    member, account, _ = members.from_run(Path("first.run"))
    local.service.add("trips", "y", member._replace(position=0), account, {"run": ""})
    local.stream = local.service.streams["trips"]
    for i, row in enumerate(rows[20:]):
        local.ask(f"{i}", row)
    # A text that is asked about, and never learned, takes no place.
    local.ask(None, rows[0] | {"city": "Nowhere"})
    for i, d in enumerate(answers[20:]):
        local.answer(f"{i}", d)
    assert same_bits(local.state, jb.load("all.run")[1])
    local.crash()
    local = Local(tmp_path / "state")
    assert same_bits(local.service.streams["trips"].now.leading.state, jb.load("all.run")[1])
    local.stop()


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """SQLite refuses to grow: requests that would change something are refused, others go on."""
    xs, ds = stream(60)
    local = Local(tmp_path)
    predictions = feed(local, xs[:5], ds[:5])
    database = local.service.log._db
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages}")
    acknowledged = 5
    with pytest.raises(Refusal, match="cannot be written: database or disk is full") as full:
        for i in range(5, 60):
            local.answer(None, float(ds[i]), features(xs[i]) | {"u": float(xs[i, 0])})
            acknowledged += 1
    assert full.value.status == 507 and len(predictions) == 5
    assert local.ask(None, features(xs[0]))["prediction"] is not None
    assert same_bits(local.state, run_of("newton", xs[:acknowledged], ds[:acknowledged])[0])
    database.execute(f"PRAGMA max_page_count = {10**6}")
    local.answer(None, float(ds[acknowledged]), features(xs[acknowledged]))
    n = acknowledged + 1
    local.crash()
    local = Local(tmp_path)
    assert same_bits(local.state, run_of("newton", xs[:n], ds[:n])[0])
    local.stop()


def test_a_checkpoint_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(service, "PATIENCE", 0.0)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    xs, ds = stream(10)
    local = Local(tmp_path, every=5)
    with monkeypatch.context() as context:
        context.setattr(service.members, "save", full)
        feed(local, xs, ds)
        local.stop()
    assert any(
        "No space left on device; the log keeps what is new" in line for line in local.messages
    )
    local = Local(tmp_path)
    assert same_bits(local.state, run_of("newton", xs, ds)[0])
    local.stop()


def test_checkpoints_of_different_age_come_to_the_same_end(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """A shadow whose last checkpoint failed learns from the log what the leader has learned."""
    xs, ds = stream(40)
    local = Local(tmp_path / "state")
    feed(local, xs[:10], ds[:10])
    local.stop()
    (tmp_path / "state" / "newton.newton.run").rename(tmp_path / "beside.run")
    Local(tmp_path / "other").stop()
    local = Local(tmp_path / "served")
    local.service.add_shadow("newton", "beside", tmp_path / "beside.run", {"run": ""})
    local.stream = local.service.streams["newton"]
    feed(local, xs[10:30], ds[10:30])
    save = members.save

    def fails_for_shadow(path: Path, *arguments: Any) -> None:
        if "beside" in path.name:
            raise OSError(28, "No space left on device")
        save(path, *arguments)

    monkeypatch.setattr(service, "PATIENCE", 0.0)
    with monkeypatch.context() as context:
        context.setattr(members, "save", fails_for_shadow)
        local.stop()
    local = Local(tmp_path / "served")
    feed(local, xs[30:], ds[30:], 30)
    found = local.stream.now.members
    assert same_bits(found["newton"].state, run_of("newton", xs[10:], ds[10:])[0])
    assert same_bits(found["beside"].state, run_of("newton", xs, ds)[0])
    assert found["beside"].seen == 40 and found["newton"].seen == 30
    local.stop()


def test_a_second_server_is_refused(tmp_path: Path) -> None:
    local = Local(tmp_path)
    with pytest.raises(BlockingIOError, match="Another process"):
        Local(tmp_path)
    local.stop()


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: Any) -> Clock:
    clock = Clock()
    monkeypatch.setattr(logs, "time", clock)
    return clock


def asked(log: Log, *names: str) -> None:
    with log.transaction():
        log.ask("s", [Question(name, "{}", 1.0) for name in names])


def test_questions_expire_by_age_and_give_way(tmp_path: Path, clock: Clock) -> None:
    log = Log(tmp_path / "log", Limits(questions=3, age=100.0))
    asked(log, "a", "b", "c", "d")
    assert "a" not in log.look_up("s", ["a"]).questions and log.open("s") == 3 and log.dropped == 1
    clock.now += 60
    asked(log, "b")
    clock.now += 60
    log.tidy({})
    assert [*log.look_up("s", [*"bcd"]).questions] == ["b"]
    assert log.open("s") == 1 and log.dropped == 3
    log.close()


def test_ages_go_on_after_a_restart_and_the_clock_of_the_system_does_not_matter(
    tmp_path: Path, clock: Clock
) -> None:
    log = Log(tmp_path / "log", Limits(age=100.0))
    asked(log, "a")
    clock.now += 90
    log.close()
    clock.now = 5.0  # after a start of the machine it begins anew
    log = Log(tmp_path / "log", Limits(age=100.0))
    log.tidy({})
    assert "a" in log.look_up("s", ["a"]).questions
    clock.now += 11
    log.tidy({})
    assert "a" not in log.look_up("s", ["a"]).questions
    log.close()


def test_ids_of_answers_are_bounded(tmp_path: Path, clock: Clock) -> None:
    log = Log(tmp_path / "log", Limits(answered=2, age=100.0))
    with log.transaction():
        log.close_questions("s", [*"abc"])
    log.tidy({})
    assert log.look_up("s", [*"abc"]).answered == {*"bc"}
    log.close()


def test_the_log_is_cut_behind_the_checkpoints(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", Limits())
    with log.transaction():
        for first in range(0, 50, 10):
            log.append("s", Entry(first, 10, f"[{first}]"))
    log.tidy({"s": 25})
    assert [entry.first for entry in log.entries("s", 0)] == [20, 30, 40]
    assert [entry.first for entry in log.entries("s", 30)] == [30, 40]
    log.close()


def test_another_file_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("this is no database" * 100)
    with pytest.raises(OSError, match="cannot be used: file is not a database"):
        Log(tmp_path / "log", Limits())


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", Limits())
    with pytest.raises(sqlite3.IntegrityError), log.transaction():
        log.ask("s", [Question("a", "{}", 1.0)])
        log.close_questions("s", ["a", "a"])
    assert (
        log.open("s") == 0
        and "a" not in log.look_up("s", ["a"]).questions
        and not log.look_up("s", ["a"]).answered
    )
    log.close()
