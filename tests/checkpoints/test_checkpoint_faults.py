"""A checkpoint stays whole when its writer is refused, interrupted or killed."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.checkpoints import archive, atomic
from jboost.checkpoints.checkpoint import read, save

SMALL = jb.SGD(step_size=0.1)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A checkpoint that must survive; there is nothing else in its folder."""
    save(tmp_path / "a", SMALL, SMALL.init(2), position=1)
    return tmp_path / "a"


def attempt(path: Path, position: int = 2) -> None:
    save(path, SMALL, SMALL.init(2), position=position)


def assert_old(path: Path) -> None:
    assert read(path).position == 1
    assert os.listdir(path.parent) == [path.name]


def failing(code: int) -> Any:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_refusal_keeps_the_old_file(step: str, old: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, step, failing(errno.ENOSPC))
    with pytest.raises(OSError, match=r"No space left.*before is untouched.*/a'") as caught:
        attempt(old)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert_old(old)


def test_a_full_disk_keeps_the_old_file(old: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        with pytest.raises(OSError, match="before is untouched"):
            attempt(old)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_old(old)


def test_an_interrupt_keeps_the_old_file(old: Path, monkeypatch: Any) -> None:
    def interrupted(*args: Any) -> None:
        args[0].write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(archive, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attempt(old)
    assert_old(old)


def test_a_folder_that_cannot_be_flushed(old: Path, monkeypatch: Any) -> None:
    fsync = os.fsync

    def only_files(descriptor: int, code: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            failing(code)()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", lambda descriptor: only_files(descriptor, errno.EINVAL))
    attempt(old, 2)  # some file systems have no such thing
    monkeypatch.setattr(os, "fsync", lambda descriptor: only_files(descriptor, errno.EIO))
    with pytest.raises(OSError, match="the new file is in place"):
        attempt(old, 3)
    assert read(old).position == 3


def test_where_nothing_can_be_written(old: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing was written.*none/a'"):
        attempt(old.parent / "none" / "a")
    with pytest.raises(IsADirectoryError, match="Is a folder"):
        attempt(old.parent)
    os.mkfifo(old.parent / "pipe")
    with pytest.raises(OSError, match="Is not a regular file"):
        attempt(old.parent / "pipe")
    assert stat.S_ISFIFO(os.stat(old.parent / "pipe").st_mode)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_folder_that_is_read_only(old: Path) -> None:
    old.parent.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="before is untouched"):
            attempt(old)
        assert_old(old)
    finally:
        old.parent.chmod(0o700)


def test_links_and_permissions_stay(old: Path, tmp_path_factory: Any) -> None:
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(old)
    old.chmod(0o640)
    attempt(link)
    assert link.is_symlink() and read(old).position == 2
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_leftovers_of_dead_writers_go_and_live_ones_stay(old: Path) -> None:
    with contextlib.ExitStack() as stack:
        alive = stack.enter_context(atomic.replacing(old))
        alive.write(b"half")
        (name,) = {*os.listdir(old.parent)} - {old.name}
        dead = name[: len(name) - 8] + "dead.tmp"
        others = [f"{name}.npz", ".jboost-of-another-file.tmp"]
        for leftover in (dead, *others):
            (old.parent / leftover).write_bytes(b"half")
        attempt(old, 3)
        assert {*os.listdir(old.parent)} == {old.name, name, *others}
        assert read(old).position == 3
    assert old.read_bytes() == b"half"  # the slower writer comes last, whole


def test_a_second_owner_is_refused(old: Path) -> None:
    with atomic.owning(old):
        attempt(old)
        with pytest.raises(BlockingIOError, match=r"Another process.*/a'"), atomic.owning(str(old)):
            pass
    assert os.listdir(old.parent) == [old.name]
    with atomic.owning(old), atomic.owning(old.parent / "b"):
        locks = {*os.listdir(old.parent)} - {old.name}
        assert len(locks) == 2
    assert os.listdir(old.parent) == [old.name]
    for lock in locks:  # as a killed owner leaves it
        (old.parent / lock).touch()
    with atomic.owning(old), atomic.owning(old.parent / "b"):
        pass
    assert os.listdir(old.parent) == [old.name]


WRITER = """
import os, sys
import numpy as np
import jboost as jb
from jboost.checkpoints.checkpoint import save
from jboost.learners.newton import RootState

def write(path, i, n=304):
    while True:
        fill = lambda *shape: np.full(shape, i, np.float32)
        state = RootState(fill(n), fill(n, n), np.int32(i))
        save(path, jb.Newton(), state, position=i, num_features=n)
        os.write(1, b"%d\\n" % i)
        i += 1

for line in sys.stdin:  # a writer per line; forked, since importing takes longer than all the rest
    pid = os.fork()
    if pid == 0:
        write(sys.argv[1], int(line))
    os.write(1, b"pid %d\\n" % pid)
    os.waitpid(pid, 0)
    os.write(1, b"end\\n")
"""


def kill_writers(path: Path, times: int) -> int:
    """Kill a writer at random instants; returns how often it left a temporary file behind."""
    rng = random.Random(times)
    root = str(Path(jb.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": root, "JAX_PLATFORMS": "cpu"}
    interrupted, last = 0, 0
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment, text=True, bufsize=1,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        for _ in range(times):
            process.stdin.write(f"{last + 1}\n")
            pid, written = None, False
            while not (pid and written):
                line = process.stdout.readline()
                if line.startswith("pid"):
                    pid = int(line.split()[1])
                else:
                    last, written = int(line), True
            time.sleep(rng.uniform(0, 0.03))
            os.kill(pid, signal.SIGKILL)
            while (line := process.stdout.readline()) != "end\n":
                last = int(line)
            interrupted += len(os.listdir(path.parent)) > 1
            checkpoint = read(path)
            assert checkpoint.position is not None and checkpoint.position >= last
            last = checkpoint.position
            assert all(
                (np.asarray(leaf) == last).all() for leaf in jax.tree.leaves(checkpoint.state)
            )
        process.stdin.close()
    assert process.returncode == 0
    save(path, SMALL, SMALL.init(2))
    assert os.listdir(path.parent) == [path.name]
    return interrupted


def test_killed_while_saving(tmp_path: Path) -> None:
    kill_writers(tmp_path / "a", 10)


@pytest.mark.slow
def test_killed_two_hundred_times_while_saving(tmp_path: Path) -> None:
    assert kill_writers(tmp_path / "a", 200) > 20
