"""Replaces a file whole or not at all, whenever the writer dies.

The new contents go to a temporary file beside the target, are flushed to the disk, and then take
the target's name in one step: there is always the old file or the new one, never a part of either.
A writer locks its temporary file. The lock ends with the process, however that ends; a temporary
file without a lock is a leftover, which the next writer removes.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # the system is not POSIX: no locks, so leftovers stay and nobody is refused
    fcntl = None

PathLike = str | os.PathLike[str]

UNTOUCHED = "nothing was written, and what was there before is untouched"
# The errors of systems that cannot flush a folder, or do not let a folder be opened for that.
_NO_FOLDER_FLUSH = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM}


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` when the ``with`` block ends without an error.

    A link is followed, and the permissions of the old file are kept. If the system refuses, the
    message of the ``OSError`` says whether the old file or the new one is in place.
    """
    target = os.path.realpath(path)
    folder, hidden = _hidden(target)
    with _saying(UNTOUCHED, path):
        old = os.stat(target) if os.path.exists(target) else None
        if old is not None and stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a folder, not a file")
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise OSError(errno.EINVAL, "Is not a regular file")  # a device must not be replaced
        _remove_leftovers(folder, f"{hidden}-")
        temporary, file = _create(os.path.join(folder, f"{hidden}-"))
    try:
        with _saying(UNTOUCHED, path):
            yield file
            file.flush()
            if old is not None:
                os.chmod(temporary, stat.S_IMODE(old.st_mode))
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # such a system does not rename an open file
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):  # to close may write again what the disk had no room for
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        file.close()  # only now, since this ends the lock, which must last until the rename
    with _saying("the new file is in place, but may not outlast a power failure", path):
        _flush_folder(folder)


@contextlib.contextmanager
def owning(path: PathLike) -> Iterator[None]:
    """Claim ``path`` for as long as the ``with`` block lasts.

    A second process that claims the path is refused with a ``BlockingIOError``. The claim, a lock
    on a hidden file, ends with the process. On systems without locks nobody is refused.
    """
    if fcntl is None:
        yield
        return
    lock = os.path.join(*_hidden(os.path.realpath(path))) + ".lock"
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:  # the error names the caller's path, not the lock's
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        try:
            if not claim(descriptor, path) or _is_still(descriptor, lock):
                break
        except BlockingIOError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the owner before has just removed this lock file: make a new one
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock)
        os.close(descriptor)


def claim(descriptor: int, path: PathLike) -> bool:
    """Lock an open file until it is closed; False if the system cannot.

    If another process has locked the file, a ``BlockingIOError`` names its ``path``.
    """
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        advice = "Another process writes to this file; wait for it or choose another name"
        raise BlockingIOError(errno.EWOULDBLOCK, advice, os.fspath(path)) from None
    except OSError:
        pass  # some network file systems have no locks
    return False


def _create(prefix: str) -> tuple[str, BinaryIO]:
    """Create a file of a new name, and lock it."""
    while True:
        path = f"{prefix}{secrets.token_hex(8)}.tmp"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(path, flags, 0o666), "w+b")
        if not _lock(file) or _is_still(file.fileno(), path):
            return path, file
        file.close()  # another writer took the file, not locked yet, for a leftover


def _lock(file: BinaryIO, *, wait: bool = True) -> bool:
    """Lock a file; False if another process has, or the system cannot."""
    with contextlib.suppress(OSError):  # some network file systems have no locks
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
    return False


def _is_still(descriptor: int, path: str) -> bool:
    """Return whether a path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _remove_leftovers(folder: str, prefix: str) -> None:
    """Remove temporary files that nobody holds a lock on: their writers are gone."""
    with contextlib.suppress(OSError):  # a folder may be writable and not readable
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(".tmp"):
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    if _lock(file, wait=False):
                        os.unlink(path)


def _flush_folder(folder: str) -> None:
    """Make the new names in a folder outlast a power failure."""
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
    """Raise an error of the system again with the caller's path and the state of the file there."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error}; {consequence}"
        raise OSError(error.errno, reason, os.fspath(path)) from error


def _hidden(path: str) -> tuple[str, str]:
    """Return the folder of a path, and how the names of its hidden files there begin."""
    folder, name = os.path.split(path)  # the name may be as long as names can be: digest it
    return folder, f".jboost-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
