"""The display of how far long work has come: a line on a terminal, or a bar in a notebook."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import warnings
from typing import Any, ClassVar, Self, TextIO

PAUSES = (0.2, 10.0)  # seconds between texts, on a terminal and in a log, which would fill up
TICK = 0.5  # seconds after which a terminal is brought up to date, whether or not work has gone on
SHORT = 2.0  # seconds: the count of work that is over sooner is not left on the terminal
COMPILING = "compiling…"


class Progress:
    """A line on standard error that a terminal rewrites; in a notebook it is a bar of ``tqdm``.

    :meth:`compiling` says at once why nothing else happens, and on a terminal for how long
    already. :meth:`say` shows any text and leaves nothing. :meth:`add` counts towards ``total``,
    estimates the time left without that of compiling, and leaves the last count. The display
    closes by itself when the count is full.

    Args:
      title: what the count is of.
      total: how far the count will go; 0 where nothing is counted. It may be changed later.
      shown: whether to show anything. None means: on a terminal or in a notebook. True means: in a
        log too, a line every ten seconds.
      unit: what is counted.
    """

    def __init__(
        self, title: str = "", total: int = 0, shown: bool | None = None, *, unit: str = "runs"
    ):
        self.total, self._title, self._unit = total, title and f"{title}: ", unit
        self._display, self._asked = _display(shown), bool(shown)
        self._start = self._since = time.monotonic()  # of all work, and of the work that is counted
        self._next = self._start  # when the next text may be shown
        self._count = self._before = 0  # of all work, and of the work that is not in the estimate
        self._text, self._left, self._compiling = "", "", False
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compiling(self) -> None:
        """Say that a program is being compiled, until something is said or counted."""
        with self._lock:
            self._compiling, self._text, self._since = True, "", time.monotonic()
            self._next = self._since
            self._show()

    def say(self, text: str) -> None:
        """Show a text, at once or, shortly after another one, as soon as the other had its time."""
        with self._lock:
            self._compiling, self._text = False, text
            self._show()

    def add(self, count: int, label: str = "") -> None:
        """Count more work that is done; ``label`` says which."""
        with self._lock:
            self._count += count
            self._text = label
            if self._count >= self.total:
                return self._close()
            now = time.monotonic()
            if self._compiling:  # the time until now says nothing about the work that is left
                self._compiling, self._since, self._before = False, now, self._count
            elif counted := self._count - self._before:
                left = (now - self._since) * (self.total - self._count) / counted
                self._left = f", about {duration(left)} left"
            self._show()

    def close(self) -> None:
        """Remove the line, or leave the last count, where there is one and it took a while."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._display is None or self._closed.is_set():
            return
        self._closed.set()
        spent = time.monotonic() - self._start
        counted = self._count and (self._asked or spent >= SHORT)
        self._display.close(self._counted(spent) if counted else "", self._share)

    def _show(self) -> None:
        """Show how far the work is, unless another text was shown just before."""
        now = time.monotonic()
        if self._display is None or self._closed.is_set() or now < self._next:
            return
        self._next = now + self._display.pause
        self._display.show(self._line(now), self._share)
        if self._display.rewrites and self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, name="jboost-line", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: the line is merely less new
                self._ticker.start()

    def _tick(self) -> None:
        while not self._closed.wait(TICK):
            with self._lock:
                self._show()

    def _line(self, now: float) -> str:
        if self._compiling:
            spent = now - self._since
            return f"{self._title}{COMPILING}" + (f" {duration(spent)}" if spent >= 1 else "")
        if self._text and not self._count:
            return f"{self._title}{self._text}"
        text = self._counted(now - self._start) + self._left
        return f"{text}; {self._text}" if self._text else text

    @property
    def _share(self) -> float:
        return self._count / self.total if self.total else 0.0

    def _counted(self, spent: float) -> str:
        share = f"{percent(self._count, self.total)}, {self._count:,} of {self.total:,}"
        return f"{self._title}{share} {self._unit}, {duration(spent)}"


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(3.2), duration(300), duration(9000)
    ('3 s', '5 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def percent(done: float, total: float) -> str:
    """Return the part that is done; where the total is an estimate it may be too small.

    >>> percent(1, 3), percent(11, 10)
    ('33%', '100%')
    """
    return f"{min(int(100 * done / max(total, 1)), 100)}%"


class _Line:
    """A line of a terminal, which is rewritten, or of a log, which is not.

    A terminal shows the line of the work that began first, and none of the work within it.
    """

    shown: ClassVar[_Line | None] = None  # the line on the terminal

    def __init__(self, out: TextIO, rewrites: bool):
        self._out, self.rewrites, self.pause = out, rewrites, PAUSES[not rewrites]

    def show(self, text: str, share: float) -> None:
        self._print(text, "" if self.rewrites else "\n")

    def close(self, text: str, share: float) -> None:
        if text or self.rewrites:
            self._print(text, "\n" if text else "")
        if _Line.shown is self:
            _Line.shown = None

    def _print(self, text: str, end: str) -> None:
        if self.rewrites:
            _Line.shown = _Line.shown or self
            if _Line.shown is not self:
                return
            columns = 80
            with contextlib.suppress(OSError, ValueError):  # of a stream that is no file
                columns = os.get_terminal_size(self._out.fileno()).columns or columns
            # A line that is longer than the terminal's would not be removed as a whole.
            text = text if len(text) < columns else f"{text[: max(columns - 2, 0)]}…"
            text = f"\r\x1b[K{text}"
        with contextlib.suppress(OSError, ValueError):  # work goes on where nobody can see it
            print(text, end=end, file=self._out, flush=True)


class _Bar:
    """A bar of a notebook."""

    pause, rewrites = PAUSES[0], False  # widgets belong to the thread of the notebook

    def __init__(self, tqdm: Any):
        self._bar = tqdm(total=1.0, bar_format="{bar} {desc}", leave=True)

    def show(self, text: str, share: float) -> None:
        self._bar.n = share
        self._bar.set_description_str(text)  # which draws the bar

    def close(self, text: str, share: float) -> None:
        if text:
            self.show(text, share)
        else:  # a bar that is not full would stay
            self._bar.n, self._bar.leave = self._bar.total, False
        self._bar.close()


def _display(shown: bool | None) -> _Line | _Bar | None:
    """Return where progress is shown; None if nowhere."""
    out = sys.stderr
    if out is None or shown is False:
        return None
    if out.isatty():
        return _Line(out, rewrites=True)
    if type(out).__module__.startswith("ipykernel"):
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without widgets, tqdm shows a line of text
            from tqdm.auto import tqdm

            return _Bar(tqdm)
    return _Line(out, rewrites=False) if shown else None
