"""What a process holds, by the system's own account."""

import ctypes
import os
import re
from pathlib import Path

STATUS = Path("/proc/self/status")
TOLD = STATUS.exists()

# For processes that tests start: the checkout, and the folder of the tests.
TESTS = Path(__file__).parents[1]
ENVIRONMENT = {"PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}


def begin() -> float:
    """Let the peak begin anew; returns the megabytes that this process holds now."""
    if not TOLD:
        return 0.0
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    """The most megabytes that this process has held; 0 where the system does not tell.

    getrusage tells another number: a process that another one starts begins with what that one
    held, and may grow by as much unseen.
    """
    if not TOLD:
        return 0.0
    return int(re.findall(r"VmHWM:\s+(\d+) kB", STATUS.read_text())[0]) / 1024


def held() -> float:
    """The megabytes that this process holds now; 0 where the system does not tell."""
    if not TOLD:
        return 0.0
    return int(re.findall(r"VmRSS:\s+(\d+) kB", STATUS.read_text())[0]) / 1024


def give_back() -> None:
    """Return freed memory to the system, where its C library can."""
    if TOLD:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
