"""How far long work has come, on standard error: tqdm's bar where it is installed, else a line."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

PATIENCE = 2.0  # seconds before anything is shown
PAUSE = 10.0  # seconds between lines where lines cannot be rewritten, as in a log


class Progress:
    """A count towards a total.

    ``shown`` is True, False, or None for "on a terminal, if it takes more than two seconds".
    """

    def __init__(self, title: str, total: int, shown: bool | None = None):
        terminal = sys.stderr.isatty()
        self._shown = terminal if shown is None else shown
        self._rewrites = terminal
        self._title, self._total, self._count = title, total, 0
        self._start = time.monotonic()
        self._next = self._start + (PATIENCE if shown is None else 0.0)
        self._said = False
        self._bar = self._make_bar(shown) if self._shown else None

    def _make_bar(self, shown: bool | None) -> Any:
        try:
            tqdm = importlib.import_module("tqdm").tqdm
        except ModuleNotFoundError:
            return None
        delay = PATIENCE if shown is None else 0.0
        return tqdm(desc=self._title, total=self._total, unit="run", delay=delay)

    def add(self, count: int) -> None:
        """So many more are done."""
        self._count += count
        if self._bar is not None:
            self._bar.update(count)
        elif self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + (0.2 if self._rewrites else PAUSE)
            self._say()

    def close(self) -> None:
        """Nothing more will be said."""
        if self._bar is not None:
            self._bar.close()
        elif self._said:
            self._say(last=True)

    def _say(self, last: bool = False) -> None:
        self._said = True
        spent = time.monotonic() - self._start
        left = spent * (self._total - self._count) / max(self._count, 1)
        rest = "" if last else f", about {left:.0f} s left"
        text = f"{self._title}: {self._count:,} of {self._total:,} runs, {spent:.0f} s{rest}"
        start, end = ("\r\x1b[K", "\n" if last else "") if self._rewrites else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)
