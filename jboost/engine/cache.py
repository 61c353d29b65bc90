"""Compiled programs that are kept between processes, in a folder of the user's.

This module chooses the folder and bounds its size. The programs of runs are written and read by
:mod:`jboost.engine.kept`, all others by JAX. Several processes may share the folder. A file that is
damaged or half written is compiled again. Programs are machine code: like the folder of a library,
the folder should be one in which only its user writes.
"""

import contextlib
import errno
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from jboost.core import checks

VARIABLE = "JBOOST_CACHE"  # the environment variable that names the folder, or says "off"
OFF = "off"
LARGEST = 2**29  # bytes that the folder may hold; programs not used for longest are removed
KEPT = "kept_"  # begins the names of what jboost writes, see `engine.kept`; JAX's begin with jit_
SOONEST = 0.05  # seconds: a program that compiles in less is not worth a file

_folder: str | None = None  # the one in use


def cache(folder: str | os.PathLike[str] | None = None, *, clear: bool = False) -> Path | None:
    """Keep compiled programs between processes from now on, and return the folder they are in.

    The first run of a model in a later process then takes the program from there instead of
    tracing and compiling it. Predictions are the same bits. A model that has a class or function of
    a user is traced again, since its source may have changed, but not compiled. Changes that a
    process makes to this library's own functions and constants are not noticed: a process that does
    so should switch the cache off. Where JAX has a folder already, as by
    ``jax_compilation_cache_dir``, that folder is left as it is.

    Args:
      folder: where to keep the programs. By default the environment variable ``JBOOST_CACHE`` says
        it, else it is ``jboost`` in the user's cache folder. "off" switches the cache off.
      clear: whether to remove what the folder holds.

    >>> import tempfile, jboost as jb
    >>> jb.cache(tempfile.mkdtemp()) == jb.cache("off")
    False
    """
    clear = checks.flag("clear", clear)
    try:
        chosen = os.environ.get(VARIABLE) or default() if folder is None else folder
        chosen = checks.path("folder", chosen)
        if chosen == OFF:
            _use(None)
            return None
        path = Path(chosen).expanduser().absolute()
        theirs = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
        if folder is None and theirs and Path(theirs) != path:
            return Path(theirs)
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        _bound(path, 0 if clear else LARGEST)
    except (OSError, RuntimeError) as error:  # RuntimeError: the system does not say what home is
        warnings.warn(f"compiled programs are not kept: {error}", stacklevel=2)
        return None
    _use(path)
    return path


def current() -> str | None:
    """Return the folder that programs are kept in now; None where the cache is off, or a user's."""
    settings: Any = jax.config
    now = settings.jax_compilation_cache_dir if settings.jax_enable_compilation_cache else None
    return now if now == _folder else None


def default() -> Path:
    """Return the folder of the user's cache that is jboost's."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "jboost" / "programs"


def _use(path: Path | None) -> None:
    from jax.experimental.compilation_cache import compilation_cache

    global _folder
    _folder = None if path is None else str(path)
    settings = {
        "jax_compilation_cache_dir": _folder,
        "jax_persistent_cache_min_compile_time_secs": SOONEST,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # JAX looks at the folder only once


def _bound(path: Path, largest: int) -> None:
    """Remove the programs that were not used for longest, until the rest is small enough."""
    total = 0
    for _, size, file in sorted(programs(path), reverse=True):
        total += size
        if total > largest:
            with contextlib.suppress(OSError):  # another process may have removed it
                file.unlink()


def programs(path: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield when each program was last used, its size and its file."""
    for file in path.iterdir():
        with contextlib.suppress(OSError):
            if file.name.startswith(("jit_", KEPT)) and file.is_file():
                found = file.stat()
                yield max(found.st_atime, found.st_mtime), found.st_size, file
