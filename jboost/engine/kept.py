"""Programs that are kept whole between processes, so that a later process need not trace them.

JAX's own cache saves a process the compiler, but the process must trace and lower a program before
it can ask for it, which for ``jb.auto()`` takes two thirds of the time. Here a program is found by
a description of all that its trace depends on: the source of this library, the versions of the
others, JAX's settings, the machine, and the structure, shapes and dtypes of the arguments. Where
one of them has no description, as the class of a user has none, JAX's own cache does its part.

An entry is a file with a checksum. One that is damaged counts as missing, and is written again.
"""

import contextlib
import functools
import hashlib
import inspect
import json
import os
import platform
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jboost.engine import cache, descriptions, executables
from jboost.engine.descriptions import NotDescribedError

PACKAGE = str(Path(__file__).parents[1])
MOST_PROGRAMS = 256  # that are remembered in this process, of one function
DIGEST = 32  # bytes
# JAX's settings that say where programs are kept and what is logged, and change no program.
_NO_MATTER = ("jax_compilation_cache", "jax_persistent_cache", "jax_log", "jax_explain",
              "jax_enable_compilation_cache", "jax_raise_persistent", "jax_debug_log")  # fmt: skip
_begun = time.time()


class Question(NamedTuple):
    """Something that is found out by looking at a traced program."""

    ask: Callable[..., Any]  # a function of a module: of the program, and of more; returns JSON
    more: tuple[Any, ...]  # plain values


class Kept:
    """A jitted function whose programs are kept where a folder is in use; it is called like it.

    Args:
      program: the function, jitted. It changes no arrays outside of its arguments.
      f: the same function before that, of a module; or a ``partial`` of one, with plain values.
      static: the names of its static arguments.
    """

    def __init__(self, program: Any, f: Callable[..., Any], static: Iterable[str]):
        names = {name: i for i, name in enumerate(inspect.signature(f).parameters)}
        self._program, self._f = program, f
        self._static = frozenset(names[name] for name in static)
        self._found: dict[Any, Any] = {}  # the programs of this process

    def __call__(self, *arguments: Any) -> Any:
        program = self._program_for(arguments)
        if program is None:
            return self._program(*arguments)
        return program(*self._apart(arguments)[1])

    def _program_for(self, arguments: tuple[Any, ...]) -> Any:
        """Return the program for these arguments; None where it is JAX that finds it."""
        if not _in_use():
            return None
        static, moving = self._apart(arguments)
        leaves, structure = jax.tree.flatten(moving)
        if any(getattr(leaf, "committed", False) for leaf in leaves):
            return None  # perhaps for another device
        key = static, structure, tuple(map(_kind_of, leaves)), executables.context()
        program = self._found.get(key)
        if program is None:
            try:
                program = self._load(arguments) or self._make(arguments)
            except NotDescribedError:
                return None
            while len(self._found) >= MOST_PROGRAMS:
                self._found.pop(next(iter(self._found)), None)
            self._found[key] = program
        return program

    def for_one_kind(self) -> Callable[..., Any]:
        """Return the function for arguments that are all alike: it looks at the first ones only.

        It must have no static arguments. To look at the arguments of each call takes 10 µs.
        """
        assert not self._static
        program = None

        def call(*arguments: Any) -> Any:
            nonlocal program
            if program is None:
                program = self._program_for(arguments) or self._program
            return program(*arguments)

        return call

    def count(self) -> int:
        """Return how many programs of the function this process has."""
        return len(self._found) + self._program._cache_size()

    def answer(self, question: Question, *arguments: Any) -> Any:
        """Return what is found out by looking at the program of these arguments."""

        def look() -> Any:
            return question.ask(self._program.trace(*arguments), *question.more)

        if not _in_use():
            return look()
        try:
            name = self._name_of(arguments, descriptions.of_value(tuple(question)))
        except NotDescribedError:
            return look()
        kept = read(name)
        if kept is not None:
            return kept[0]["answer"]
        answer = look()
        write(name, {"answer": answer}, b"")
        return answer

    def _load(self, arguments: tuple[Any, ...]) -> Any:
        """Return the program for these arguments that is kept, or None."""
        kept = read(self._name_of(arguments))
        if kept is None:
            return None
        try:
            return executables.from_bytes(*kept, self._apart(arguments)[1])
        except Exception:  # whatever JAX, XLA or the description of its results object to
            return None

    def _make(self, arguments: tuple[Any, ...]) -> Any:
        """Return the program for these arguments, compiled, and keep it."""
        compiled, afresh = executables.compile_afresh(self._program.lower(*arguments))
        if afresh:
            with contextlib.suppress(NotDescribedError):
                write(self._name_of(arguments), *executables.to_bytes(compiled))
        return compiled

    def _apart(self, arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        static = tuple(arguments[i] for i in sorted(self._static))
        return static, tuple(a for i, a in enumerate(arguments) if i not in self._static)

    def _name_of(self, arguments: tuple[Any, ...], question: Any = None) -> str:
        """Return the name of the file with the program for these arguments."""
        static, moving = self._apart(arguments)
        described = [descriptions.of_value(self._f), question, *map(descriptions.of_value, static)]
        leaves, structure = jax.tree.flatten(moving)
        described += [
            descriptions.of_structure(structure),
            [str(_kind_of(leaf)) for leaf in leaves],
        ]
        text = json.dumps([_surroundings(), described])
        name = getattr(self._f, "func", self._f).__name__
        return f"{cache.KEPT}{name}-{hashlib.sha256(text.encode()).hexdigest()}"


def _in_use() -> bool:
    if not executables.KNOWN or cache.current() is None:
        return False
    settings: Any = jax.config
    return not settings.jax_disable_jit and settings.jax_default_device is None


def _kind_of(leaf: Any) -> tuple[Any, ...]:
    """Return all that a program depends on of an array or number."""
    if type(leaf) in (bool, int, float, complex):
        return (type(leaf),)
    return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)


def _surroundings() -> list[str]:
    """Return all that every program depends on beside its arguments."""
    context = executables.context()
    if not executables.is_plain(context):
        raise NotDescribedError("something is in JAX's context that is no setting")
    values: dict[str, Any] = jax.config.values
    settings = [f"{k}={v!r}" for k, v in values.items() if not k.startswith(_NO_MATTER)]
    flags = [os.environ.get("XLA_FLAGS", ""), *(a for a in sys.argv if a.startswith("--xla"))]
    fixed = _fixed()
    if fixed is None:
        raise NotDescribedError("no program of this process is kept")
    return [fixed, *settings, *flags]


@functools.cache
def _fixed() -> str | None:
    """Return what does not change in a process: the source, the versions and the machine.

    It is None where programs are not kept: on other devices than a CPU, of several processes that
    compute together, and where the source has changed since it was imported.
    """
    device, source = jax.local_devices()[0], _source()
    if device.platform != "cpu" or jax.process_count() > 1 or source is None:
        return None
    versions = (jax.__version__, version("jaxlib"), np.__version__, version("optax"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = (source, *versions, platform.python_version(), platform.machine(), cores)
    return f"{parts} {executables.fingerprint_of(device)}"


def _source() -> str | None:
    """Return a digest of this library's source; None if it has changed since it was imported."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(PACKAGE):
        folders.sort()
        for name in sorted(file for file in files if file.endswith(".py")):
            with open(os.path.join(folder, name), "rb") as file:
                if os.fstat(file.fileno()).st_mtime >= _begun:
                    return None
                digest.update(f"{folder[len(PACKAGE) :]}/{name}\0".encode() + file.read() + b"\0")
    return digest.hexdigest()


def read(name: str) -> tuple[dict[str, Any], bytes] | None:
    """Return the data and the bytes of an entry; None where there is none, or it is damaged."""
    file = Path(str(cache.current())) / name
    try:
        content = file.read_bytes()
        digest, packed = content[:DIGEST], content[DIGEST:]
        if hashlib.sha256(name.encode() + packed).digest() != digest:
            return None
        os.utime(file)  # programs that were not used for longest are removed
        data, _, program = zlib.decompress(packed).partition(b"\n")
        return json.loads(data), program
    except (OSError, ValueError, zlib.error):
        return None


def write(name: str, data: dict[str, Any], program: bytes) -> None:
    """Keep an entry. Another process may write the same one: each file appears whole."""
    packed = zlib.compress(json.dumps(data).encode() + b"\n" + program, 1)
    file = Path(str(cache.current())) / name
    passing = file.with_name(f"{name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        passing.write_bytes(hashlib.sha256(name.encode() + packed).digest() + packed)
        passing.replace(file)
    except OSError as error:
        passing.unlink(missing_ok=True)
        warnings.warn(f"compiled programs are not kept: {error}", stacklevel=2)
