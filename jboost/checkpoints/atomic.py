"""Files that are replaced whole or not at all, whenever the writer dies.

What is written goes to a temporary file beside the target, is flushed to the disk, and then takes
the target's name in one step; so there is the old file or the new one, never half of either and
never none. A writer holds a lock on its temporary file. The system drops the lock when the process
ends, however it ends, which is how the next writer knows what a killed one left behind.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # not a POSIX system: no locks, so leftovers stay and nobody is refused
    fcntl = None

PathLike = str | os.PathLike[str]

UNTOUCHED = "nothing was written, and what was there before is untouched"
# What systems answer that cannot flush a folder, or do not let it be opened for that.
_NO_FOLDER_FLUSH = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM}


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` when the block ends without an error.

    A link is followed; permissions of a file that is replaced are kept. Where the system refuses,
    an ``OSError`` says whether the old file or the new one is in place.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a")
    ...     with replacing(path) as file:
    ...         _ = file.write(b"one")
    ...     path.read_bytes(), os.listdir(folder)
    (b'one', ['a'])
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    with _saying(UNTOUCHED, path):
        old = os.stat(target) if os.path.exists(target) else None
        if old is not None and stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a folder, not a file")
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise OSError(errno.EINVAL, "Is not a regular file")  # a device must not be replaced
        prefix = f".jboost-{_digest(name)}-"  # the name may itself be as long as names can be
        _remove_leftovers(folder, prefix)
        temporary, file = _create(folder, prefix)
    try:
        with _saying(UNTOUCHED, path):
            yield file
            file.flush()
            if old is not None:
                os.chmod(temporary, stat.S_IMODE(old.st_mode))
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # such systems do not rename what is open
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):  # closing may try again to write what did not fit
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        file.close()  # the lock lasts until the file has its name
    with _saying("the new file is in place, but may not outlast a power failure", path):
        _flush_folder(folder)


@contextlib.contextmanager
def owning(path: PathLike) -> Iterator[None]:
    """Keep other processes that ask the same from ``path`` for as long as the block lasts.

    A second one is refused with a ``BlockingIOError``. The claim is a lock on a hidden file beside
    ``path``; it ends with the process, however that ends. Where the system has no locks, nobody is
    refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, owning(os.path.join(folder, "a")):
    ...     with owning(os.path.join(folder, "a")):
    ...         pass
    Traceback (most recent call last):
    BlockingIOError: [Errno ...] Another process writes to this file; ...
    """
    if fcntl is None:
        yield
        return
    folder, name = os.path.split(os.path.realpath(path))
    lock = os.path.join(folder, f".jboost-{_digest(name)}.lock")
    while True:
        try:
            claim = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:  # named after what was asked for
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(claim, lock):
                break
        except BlockingIOError:
            os.close(claim)
            advice = "Another process writes to this file; wait for it or choose another name"
            raise BlockingIOError(errno.EWOULDBLOCK, advice, os.fspath(path)) from None
        except OSError:
            break  # some network file systems have no locks
        os.close(claim)  # the owner before has just removed it
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock)
        os.close(claim)


def _create(folder: str, prefix: str) -> tuple[str, BinaryIO]:
    """A new file that only its writer knows, locked."""
    while True:
        path = os.path.join(folder, f"{prefix}{secrets.token_hex(8)}.tmp")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(path, flags, 0o666), "w+b")
        if fcntl is None or not _lock(file) or _is_still(file.fileno(), path):
            return path, file
        file.close()  # taken for a leftover between its creation and its lock


def _lock(file: Any, flags: int = 0) -> bool:
    """Whether the lock was to be had; some network file systems have none."""
    assert fcntl is not None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | flags)
    except OSError:
        return False
    return True


def _is_still(descriptor: int, path: str) -> bool:
    """Whether a path still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _remove_leftovers(folder: str, prefix: str) -> None:
    """Remove temporary files whose writers are gone: those that nobody holds a lock on."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):  # a folder may be writable and not readable
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(".tmp"):
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    if _lock(file, fcntl.LOCK_NB):
                        os.unlink(path)


def _flush_folder(folder: str) -> None:
    """Make a change of names in a folder last."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FLUSH:
            raise


@contextlib.contextmanager
def _saying(consequence: str, path: PathLike) -> Iterator[None]:
    """An error of the system, with the caller's path and what it means for the file there."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error}; {consequence}"
        raise OSError(error.errno, reason, os.fspath(path)) from error


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
