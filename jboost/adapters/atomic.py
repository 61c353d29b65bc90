"""Makes the calls of an adapter atomic: for threads that share it, and for any exception."""

import threading
from collections.abc import Callable
from typing import Any, Self


class Atomic:
    """Base of the adapters. What they have learned is one value, which is replaced as a whole.

    A call that raises has changed nothing, wherever the exception came from: Ctrl-C, a lack of
    memory, the compiler, a wrong argument. The next value is computed beside the present one and
    takes its place by a single assignment. Copies and pickles have a lock of their own.

    Python may raise KeyboardInterrupt after that assignment, before the call returns: then the
    former value comes back, unless another thread has gone on from the new one in between.
    """

    def _replace(self, name: str, next_value: Callable[[Any], Any]) -> Self:
        """Replace an attribute by what ``next_value`` makes of it, one thread at a time."""
        # Not made in __init__, where scikit-learn allows nothing but parameters. Of two threads
        # that come here at once, setdefault gives both the same lock.
        lock = self.__dict__.get("_lock") or self.__dict__.setdefault("_lock", threading.RLock())
        before = after = None
        try:
            with lock:  # reentrant, so that a signal's handler may use the adapter it interrupts
                while after is None or getattr(self, name) is not before:  # the handler replaced it
                    before = getattr(self, name)
                    after = next_value(before)
                setattr(self, name, after)
                return self
        except BaseException:
            with lock:
                if after is not None and getattr(self, name) is after:
                    setattr(self, name, before)
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}
