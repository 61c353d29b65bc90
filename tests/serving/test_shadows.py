"""Shadows: promoted and dropped while answers come, and dropped for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
from support.serving import Local, features, run_of, same_bits, stream

from jboost.serving import service
from jboost.serving.accounts import Account
from jboost.serving.members import anew
from jboost.serving.refusal import Refusal
from jboost.serving.rows import Row
from jboost.serving.writer import Job

XS, DS = stream(300)


def row(i: int, **more: float) -> Row:
    return Row(features(XS[i]) | more, None, float(DS[i]))


def kept(folder: Path, **more: float) -> Path:
    """A run that has learned the first ten rows, in a column more if there is one."""
    local = Local(folder)
    local.do([row(i, **more) for i in range(10)], learn=True)
    local.stop()
    return folder / "newton.newton.run"


def beside(folder: Path, run: Path) -> Local:
    """A service with a model that learns from nothing, and a run in its shadow."""
    local = Local(folder)
    local.service.add_shadow("newton", "beside", run, {"run": ""})
    local.stream = local.service.streams["newton"]
    return local


def test_to_promote_and_drop_under_load_changes_no_bit(tmp_path: Path) -> None:
    local = beside(tmp_path / "served", kept(tmp_path / "before"))
    local.do([row(10)], learn=True)
    writer, asked = local.service.writer, []
    assert writer is not None
    for i in range(11, 300):
        writer.submit([Job(local.stream, [row(i)], True, lambda _: None)])
        if i in (60, 120, 180):
            asked.append(local.service.ask(lambda: local.service.promote(local.stream, None)))
        if i == 240:
            asked.append(local.service.ask(lambda: local.stream.now.members["newton"]))
            asked.append(local.service.ask(lambda: local.service.drop(local.stream, "newton")))
    done: list[Job] = []
    while len(done) < 289:
        done += local._done.get(timeout=60)
    assert not any(job.refusal for job in done)
    *leaders, dropped, label = [future.result() for future in asked]
    assert leaders == ["beside", "newton", "beside"] and label == "newton"
    assert [*local.stream.now.members] == [*local.stream.accounts] == ["beside"]
    assert same_bits(local.state, run_of("newton", XS, DS)[0])
    assert 200 < dropped.seen < 300
    learned = slice(10, 10 + dropped.seen)
    assert same_bits(dropped.state, run_of("newton", XS[learned], DS[learned])[0])
    local.stop()


def test_what_was_dropped_stays_so_and_no_request_fails_by_it(tmp_path: Path) -> None:
    """Answers in the log, open questions and clients may all have the columns of the shadow."""
    local = beside(tmp_path / "served", kept(tmp_path / "before", extra=1.0))
    local.ask(None, features(XS[10]))  # fixes the columns of the other model
    first = {**features(XS[10]), "extra": 2.0}
    local.ask("open", first)
    local.do([row(i, extra=0.5) for i in range(10, 40)], learn=True)
    with pytest.raises(Refusal, match="'other'"):
        local.ask(None, first | {"other": 1.0})
    assert local.service.ask(lambda: local.service.drop(local.stream, None)).result() == "beside"
    with pytest.raises(Refusal, match="name the shadow to drop: there is none"):
        local.service.ask(lambda: local.service.drop(local.stream, "newton")).result()
    local.crash()
    local = Local(tmp_path / "served")
    assert [*local.stream.now.members] == ["newton"]
    assert local.service.origin("newton", "beside") == {"run": ""}  # a command leaves it away
    local.answer("open", float(DS[10]))
    local.do([row(40, extra=0.5)], learn=True)
    local.ask(None, first)
    with pytest.raises(Refusal, match="'other'"):
        local.ask(None, first | {"other": 1.0})
    order = [*range(10, 40), 10, 40]
    assert same_bits(local.state, run_of("newton", XS[order], DS[order])[0])
    local.stop()
    assert (tmp_path / "served" / "newton.beside.run").exists()


def test_a_full_disk_drops_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    local = beside(tmp_path / "served", kept(tmp_path / "before"))

    def full(*_: object) -> None:
        raise service.sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as context:
        context.setattr(local.service.log, "put", full)
        for change in (local.service.drop, local.service.promote):
            with pytest.raises(Refusal, match="nothing was changed: database or disk is full"):
                change(local.stream, "beside")
    assert [*local.stream.accounts] == ["newton", "beside"]
    assert local.stream.now.leader == "newton"
    local.stop()


def test_two_models_in_one_file_are_refused(tmp_path: Path) -> None:
    """The shadow b.c of a would lie where the shadow c of a.b lies."""
    run, local = kept(tmp_path / "before"), Local(tmp_path / "served")
    for name in ("a", "a.b"):
        asked = {"name": "nlms", "settings": {}, "seed": None, "intervals": None, "key": None}
        local.service.add(name, "y", anew(**asked), Account(name, None), {"anew": asked})
    local.service.add_shadow("a", "b.c", run, {"run": ""})
    with pytest.raises(ValueError, match=r"a keeps a model in a\.b\.c\.run already"):
        local.service.add_shadow("a.b", "c", run, {"run": ""})
    assert [*local.service.streams["a.b"].now.members] == ["a.b"]
    local.stop()
    local = Local(tmp_path / "served")
    assert np.array_equal([*local.service.streams], ["newton", "a", "a.b"])
    assert local.service.origin("a.b", "c") is None
    local.stop()
