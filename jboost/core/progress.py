"""The display of how far long work has come, on standard error."""

import contextlib
import sys
import time
from typing import Self

PAUSES = (0.2, 10.0)  # seconds between lines, on a terminal and in a log, which would fill up
PATIENCE = 2.0  # seconds before anything is shown that nobody has asked for


class Progress:
    """A line on standard error: rewritten on a terminal, printed again and again in a log.

    :meth:`say` shows any text and leaves nothing on a terminal. :meth:`add` counts runs towards
    ``total`` and leaves the last count.

    Args:
      title: what the count is of.
      total: how many runs there will be; 0 where nothing is counted.
      shown: whether to show anything. None means: on a terminal, if it takes over two seconds.
      pauses: seconds between lines, on a terminal and in a log. A text that comes sooner is left
        out, and so is one that comes sooner after the beginning, unless runs are counted.
    """

    def __init__(
        self, title: str = "", total: int = 0, shown: bool | None = True, *,
        pauses: tuple[float, float] = PAUSES,
    ):  # fmt: skip
        self._rewrites = sys.stderr is not None and sys.stderr.isatty()
        self._shown = sys.stderr is not None and (self._rewrites if shown is None else shown)
        self._title, self._total, self._count = title, total, 0
        self._pause = pauses[0] if self._rewrites else pauses[1]
        self._start = time.monotonic()
        first = self._pause if not total else PATIENCE if shown is None else 0.0
        self._next = self._start + first
        self._used = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def due(self) -> bool:
        """Whether a text would be shown now."""
        return self._shown and time.monotonic() >= self._next

    def say(self, text: str) -> None:
        """Show a text, unless the last one was shown just before."""
        if self.due:
            self._next = time.monotonic() + self._pause
            self._print(text, "" if self._rewrites else "\n")

    def add(self, count: int) -> None:
        """Count more runs."""
        self._count += count
        spent = time.monotonic() - self._start
        left = spent * (self._total - self._count) / max(self._count, 1)
        self.say(f"{self._counted(spent)}, about {left:.0f} s left")

    def close(self) -> None:
        """Remove the line from a terminal, or leave the last count, where there is one."""
        if self._used and self._total:
            self._print(self._counted(time.monotonic() - self._start), "\n")
        elif self._used and self._rewrites:
            self._print("", "")

    def _counted(self, spent: float) -> str:
        return f"{self._title}: {self._count:,} of {self._total:,} runs, {spent:.0f} s"

    def _print(self, text: str, end: str) -> None:
        self._used = True
        with contextlib.suppress(OSError):  # work does not end because nobody can see how far it is
            print("\r\x1b[K" * self._rewrites + text, end=end, file=sys.stderr, flush=True)
