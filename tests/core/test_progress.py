"""The display of progress: when a line is shown, and what is left of it."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from jboost.core import progress
from jboost.core.progress import Progress


class Screen(io.StringIO):
    def __init__(self, terminal: bool):
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def clock(monkeypatch: Any) -> list[float]:
    """The time, which stands still until it is set."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def shown(monkeypatch: Any) -> Any:
    def on(terminal: bool) -> Screen:
        screen = Screen(terminal)
        monkeypatch.setattr(sys, "stderr", screen)
        return screen

    return on


@pytest.mark.parametrize(
    ("terminal", "pause", "expected"),
    [(True, 0.2, "\r\x1b[Kb\r\x1b[Kc\r\x1b[K"), (False, 10.0, "b\nc\n")],
)
def test_texts_are_shown_with_pauses(
    shown: Any, clock: list[float], terminal: bool, pause: float, expected: str
) -> None:
    screen = shown(terminal)
    with Progress() as line:
        for clock[0], text in ((0, "a"), (pause, "b"), (1.5 * pause, "between"), (2 * pause, "c")):
            assert line.due == (text in "bc")
            line.say(text)
    assert screen.getvalue() == expected


def test_a_count_stays_when_it_was_shown(shown: Any, clock: list[float]) -> None:
    for terminal, seconds, expected in (
        (False, 9.0, ""),  # nobody has asked, and a log is no terminal
        (True, 1.0, ""),  # not worth a line
        (True, 3.0, "many: 1 of 3 runs, 3 s, about 6 s leftmany: 2 of 3 runs, 3 s\n"),
    ):
        screen = shown(terminal)
        clock[0] = 0.0
        count = Progress("many", 3, shown=None)
        clock[0] = seconds
        count.add(1)
        count.add(1)
        count.close()
        assert screen.getvalue().replace("\r\x1b[K", "") == expected


def test_a_count_that_was_asked_for_is_shown_at_once(shown: Any, clock: list[float]) -> None:
    screen = shown(False)
    count = Progress("many", 2, shown=True)
    count.add(2)
    count.close()
    assert screen.getvalue().splitlines()[-1] == "many: 2 of 2 runs, 0 s"
    hidden = Progress("many", 2, shown=False)
    screen = shown(True)
    hidden.add(2)
    hidden.close()
    assert screen.getvalue() == ""
