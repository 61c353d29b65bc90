"""The display of progress: when a line is shown, and what is left of it."""

from __future__ import annotations

import io
import sys
import threading
import types
from typing import Any

import pytest

from jboost.core import progress
from jboost.core.progress import Progress

ERASE = "\r\x1b[K"


class Screen(io.StringIO):
    def __init__(self, terminal: bool):
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def clock(monkeypatch: Any) -> list[float]:
    """The time, which stands still until it is set; no line is brought up to date by itself."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "TICK", 1e6)
    return now


@pytest.fixture
def shown(monkeypatch: Any) -> Any:
    def on(terminal: bool) -> Screen:
        screen = Screen(terminal)
        monkeypatch.setattr(sys, "stderr", screen)
        return screen

    return on


def texts(screen: Screen) -> list[str]:
    return screen.getvalue().split(ERASE)[1:]


@pytest.mark.parametrize(
    ("terminal", "pause", "expected"),
    [(True, 0.2, f"{ERASE}a{ERASE}c{ERASE}e{ERASE}"), (False, 10.0, "a\nc\ne\n")],
)
def test_texts_are_shown_with_pauses(
    shown: Any, clock: list[float], terminal: bool, pause: float, expected: str
) -> None:
    screen = shown(terminal)
    with Progress(shown=True) as line:
        for number, text in enumerate("abcde"):
            clock[0] = number * pause / 2
            line.say(text)
    assert screen.getvalue() == expected


def test_nothing_is_shown_where_nobody_looks(shown: Any, clock: list[float]) -> None:
    for terminal, asked in ((False, None), (True, False), (False, False)):
        screen = shown(terminal)
        with Progress("many", 3, shown=asked) as line:
            line.compiling()
            line.say("a text")
            clock[0] += 100.0
            line.add(1)
        assert screen.getvalue() == ""


def test_compiling_is_said_at_once_and_left_out_of_the_estimate(
    shown: Any, clock: list[float]
) -> None:
    screen = shown(True)
    with Progress("many", 11) as count:
        count.say("reading")
        count.compiling()  # at once, however short the text before was shown
        assert texts(screen) == ["many: reading", "many: compiling…"]
        clock[0] = 50.0
        count.add(1)  # how long the other ten take is unknown
        clock[0] = 60.0
        count.add(5, "the sixth")
        clock[0] = 61.0
    assert texts(screen)[2:] == [
        "many: 9%, 1 of 11 runs, 50 s",
        "many: 54%, 6 of 11 runs, 60 s, about 10 s left; the sixth",
        "many: 54%, 6 of 11 runs, 61 s\n",
    ]


def test_a_count_stays_when_it_took_a_while(shown: Any, clock: list[float]) -> None:
    for seconds, expected in ((1.0, ""), (300.0, "many: 100%, 3 of 3 sheep, 5 min\n")):
        screen = shown(True)
        clock[0] = 0.0
        count = Progress("many", 3, unit="sheep")
        count.add(1)
        clock[0] = seconds
        count.add(2)  # the last one closes the display
        assert texts(screen)[-1] == expected
        count.add(1)
        count.say("no more")
        count.close()
        assert texts(screen)[-1] == expected


def test_a_count_that_was_asked_for_is_shown_in_a_log(shown: Any, clock: list[float]) -> None:
    screen = shown(False)
    count = Progress("many", 2, shown=True)
    count.compiling()
    count.add(2)
    assert screen.getvalue() == "many: compiling…\nmany: 100%, 2 of 2 runs, 0 s\n"


def test_a_line_is_no_longer_than_the_terminal(shown: Any, clock: list[float]) -> None:
    screen = shown(True)
    with Progress() as line:
        line.say("x" * 79)
        clock[0] = 1.0
        line.say("y" * 80)
    assert texts(screen) == ["x" * 79, "y" * 78 + "…", ""]


def test_a_line_is_brought_up_to_date_by_itself(shown: Any, monkeypatch: Any) -> None:
    """While the program compiles nothing else happens, and a text may come too soon."""
    monkeypatch.setattr(progress, "TICK", 0.01)
    monkeypatch.setattr(progress, "PAUSES", (0.02, 10.0))
    screen, drawn = shown(True), threading.Event()
    written = screen.write

    def write(text: str) -> int:
        if "after" in text:
            drawn.set()
        return written(text)

    monkeypatch.setattr(screen, "write", write)
    with Progress() as line:
        line.compiling()
        line.say("after")
        assert texts(screen)[0] == "compiling…"
        assert drawn.wait(60.0)
    ends = screen.getvalue()
    line.say("no more")
    assert screen.getvalue() == ends and ends.endswith(ERASE)


def test_a_terminal_shows_one_line_at_a_time(shown: Any, clock: list[float]) -> None:
    screen = shown(True)
    with Progress("outer", 9) as outer:
        outer.add(0)
        for _ in range(2):
            with Progress("inner", 2) as inner:
                inner.compiling()
                clock[0] += 5.0
                inner.add(1)
        outer.add(1)
    assert texts(screen) == [
        "outer: 0%, 0 of 9 runs, 0 s",
        "outer: 11%, 1 of 9 runs, 10 s, about 80 s left",
        "outer: 11%, 1 of 9 runs, 10 s\n",
    ]
    with Progress() as line:
        line.say("afterwards")
    assert texts(screen)[3:] == ["afterwards", ""]


def test_a_stream_that_is_closed_does_not_end_the_work(shown: Any) -> None:
    screen = shown(True)
    with Progress("many", 2) as count:
        screen.close()
        count.compiling()
        count.add(1)


def test_a_notebook_has_a_bar(monkeypatch: Any, clock: list[float]) -> None:
    class OutStream(Screen):
        """What standard error is in a notebook."""

    OutStream.__module__ = "ipykernel.iostream"
    bars = []

    class Bar:
        n, leave = 0.0, True

        def __init__(self, total: float, **_: Any):
            self.total, self.drawn, self.closed = total, [], False
            bars.append(self)

        def set_description_str(self, text: str) -> None:
            self.drawn.append((self.n, text))

        def close(self) -> None:
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto := types.ModuleType("tqdm.auto"))
    monkeypatch.setattr(auto, "tqdm", Bar, raising=False)
    monkeypatch.setattr(sys, "stderr", screen := OutStream(terminal=False))
    with Progress("many", 4) as count:
        count.compiling()
        clock[0] = 9.0
        count.add(1)
    (bar,) = bars
    texts = ["many: compiling…", *["many: 25%, 1 of 4 runs, 9 s"] * 2]
    assert bar.drawn == [*zip((0.0, 0.25, 0.25), texts, strict=True)]
    assert bar.closed and bar.leave and screen.getvalue() == ""
    with Progress() as line:
        line.say("nothing is left of it")
    assert not bars[1].leave and bars[1].n == bars[1].total  # else tqdm leaves a bar in red
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # it is not installed
    with Progress("many", 4) as count:
        count.compiling()
    assert screen.getvalue() == "" and len(bars) == 2
