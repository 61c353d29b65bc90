"""Ends the command ``jboost`` with a sentence where the system allows it too little.

JAX takes gigabytes of addresses before it computes anything, and where these are refused it ends
the process without a word. So this module is imported before JAX, and looks at the limits then.
"""

import itertools
import math
import os
import sys

try:
    import resource
except ImportError:  # the system is not POSIX: it has no such limits
    resource = None

# Measured: `jboost run` takes 2.7 to 3 GB of addresses on two cores, 0.1 GB more for each core, and
# has ten files open.
ADDRESSES, ADDRESSES_PER_CORE, FILES = 3 * 2**30, 2**27, 16


def memory() -> float:
    """How many bytes of addresses JAX leaves for models and data; infinite without a limit."""
    return _limit("RLIMIT_AS") - ADDRESSES


def shortage() -> str | None:
    """What the process is allowed too little of, and what to do, in a sentence, or None."""
    addresses, files = _limit("RLIMIT_AS"), _limit("RLIMIT_NOFILE")
    needed = ADDRESSES + ADDRESSES_PER_CORE * (os.cpu_count() or 1)
    if addresses < needed:
        sizes = f"{addresses / 1e9:.2g} GB of addresses, and takes {needed / 1e9:.2g}"
        return f"this process may have {sizes}: raise the limit by ulimit -v {needed // 1024}"
    if files < FILES:
        advice = f"raise the limit by ulimit -n {FILES}"
        return f"this process may open {files} files, which is not enough: {advice}"
    return None


def _limit(name: str) -> float:
    if resource is None:
        return math.inf
    limit = resource.getrlimit(getattr(resource, name))[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit


def is_command() -> bool:
    """Whether this process is ``jboost``, ``python -m jboost`` or ``python -m jboost.cli``."""
    program = next(iter(getattr(sys, "argv", [])), "")
    if program != "-m":  # so it is called while Python looks for the module
        return os.path.basename(program) == "jboost"
    modules = [after for word, after in itertools.pairwise(sys.orig_argv) if word == "-m"]
    return modules[:1] in (["jboost"], ["jboost.cli"])


if is_command() and (text := shortage()):
    sys.exit(f"jboost: error: {text}")
