"""A fleet's state in a folder: shard files, and a manifest that names them.

A shard has the names and the packed states of streams whose numbers follow each other. It has two
names for files: a new state is written under those that the manifest does not name, then the
manifest is replaced, and at last the files of the old state are removed. Whenever the writer dies,
the folder holds the old state or the new one. Every file is an archive of
:mod:`jboost.checkpoints.archive`, with a checksum; the manifest has the checksums of the shards, so
that a file of another time is not taken for one of this time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jboost.checkpoints import archive
from jboost.checkpoints.archive import CheckpointError
from jboost.checkpoints.atomic import owning, replacing
from jboost.checkpoints.description import Store, describe, difference
from jboost.core import Key, Learner, checks
from jboost.fleets.names import LONG, Names, words_of
from jboost.fleets.state import FleetState, rows_per_shard

MANIFEST = "fleet.npz"
_SHARD = re.compile(r"shard-\d{6,}-[ab]\.npz")
_COLUMN = "column "  # how the names of columns begin
_DIGEST = 64  # bytes at the end of an archive


Columns = Mapping[str, np.ndarray]  # by name, a number of the caller's for each stream


class Settings(NamedTuple):
    """What a fleet must have in common with the fleet whose state it reads."""

    model: Learner
    key: Key
    num_features: int
    dtype: str
    width: int  # words of a packed state

    def described(self) -> dict[str, Any]:
        """Return the settings that are numbers and words."""
        return {"num_features": self.num_features, "dtype": self.dtype, "width": self.width}


class Saved(NamedTuple):
    """What a folder holds, as far as this process knows."""

    digest: str  # of the manifest
    files: tuple[tuple[str, str], ...]  # the name and the digest of each shard's file
    marks: np.ndarray  # the marks of the shards in the state that was kept


def write_shards(
    folder: str, settings: Settings, state: FleetState, position: Any, columns: Columns,
    saved: Saved | None,
) -> Saved:  # fmt: skip
    """Write a state, whose version the caller holds; ``saved`` is what this process wrote before.

    ``columns`` have a row for each stream. A row may differ from what is kept only if the stream
    had rows since.
    """
    columns = _checked_columns(columns, state.count)
    os.makedirs(folder, exist_ok=True)
    try:
        header = {"position": json.loads(json.dumps(position, allow_nan=False))}
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"position must be something that JSON can hold ({error})") from None
    manifest = os.path.join(folder, MANIFEST)
    with owning(manifest):
        present = _files(folder)
        if present is None or (saved is not None and _digest(manifest) != saved.digest):
            saved = None  # nothing is there, or another process wrote it
        each, files = rows_per_shard(settings.width), []
        for number, mark in enumerate(state.marks.tolist()):
            if saved is not None and number < len(saved.marks) and saved.marks[number] == mark:
                files.append(saved.files[number])
                continue
            names = [f"shard-{number:06d}-{letter}.npz" for letter in "ab"]
            name = names[names[0] in (present or ())]
            streams = np.arange(number * each, min((number + 1) * each, state.count))
            path = os.path.join(folder, name)
            with replacing(path) as file:
                archive.write(file, {"shard": number}, _arrays(state, streams, columns))
            files.append((name, _digest(path)))
        header |= {"fleet": True, "rows": state.rows, "count": state.count, "each": each}
        header |= {"files": files} | settings.described()
        store = Store()
        header["model"] = describe(settings.model, store, opaque=True)
        if settings.key is not None:
            store.put("key", settings.key)
        header["keys"] = store.keys
        with replacing(manifest) as file:
            archive.write(file, header, store.arrays)
        _remove_others(folder, {name for name, _ in files})
        return Saved(_digest(manifest), tuple(files), state.marks)


def _checked_columns(columns: Columns, count: int) -> Columns:
    """Return arrays of numbers by name, of which each has ``count``."""
    wanted = f"columns must be a dict of arrays of {count} numbers, one for each stream"
    if not isinstance(columns, Mapping):
        raise TypeError(f"{wanted}; got {checks.shown(columns)}")
    arrays = {str(name): checks.array_of(values) for name, values in columns.items()}
    for name, array in arrays.items():
        if array is None or array.dtype.kind not in "biuf" or array.shape[:1] != (count,):
            raise ValueError(f"{wanted}; {name!r} is {checks.shown(columns[name])}")
    return {name: array for name, array in arrays.items() if array is not None}


def _arrays(state: FleetState, streams: np.ndarray, columns: Columns) -> archive.Arrays:
    """Return what a shard of these streams holds."""
    names = state.directory.names(streams)
    long = b"".join(content for _, content in sorted(names.long.items()))
    words = state.streams.read(streams)
    arrays = {"names": names.words, "long": np.frombuffer(long, np.uint8), "words": words}
    return arrays | {f"{_COLUMN}{name}": values[streams] for name, values in columns.items()}


def _files(folder: str) -> set[str] | None:
    """Return the files that the manifest in a folder names; None where there is no such state."""
    try:
        return {name for name, _ in read_manifest(folder)[0]["files"]}
    except (OSError, CheckpointError):
        return None


def read_manifest(folder: str) -> tuple[archive.Header, archive.Arrays]:
    """Return the header and the arrays of the manifest in a folder."""
    path = os.path.join(folder, MANIFEST)
    with _refusing(path):
        header, arrays = archive.read(path)
        if header.get("fleet") is not True:
            raise CheckpointError("is no manifest of a fleet")
        return header, arrays


def read_shards(folder: str, settings: Settings) -> tuple[Saved, archive.Header]:
    """Return what a folder holds, checked against the fleet; the shards are read by `contents`."""
    header, arrays = read_manifest(folder)
    path = os.path.join(folder, MANIFEST)
    with _refusing(path):
        store = Store()
        problem = difference(header["model"], describe(settings.model, store, opaque=True))
        if settings.key is not None:
            store.put("key", settings.key)
        for name, array in store.arrays.items():
            if problem is None and not np.array_equal(arrays.get(name, ()), array):
                problem = "the key is another one" if name == "key" else f"{name} differs"
        for name, value in settings.described().items():
            if problem is None and header[name] != value:
                problem = f"{name} is {header[name]} there and {value} in this fleet"
        if problem is not None:
            advice = "make the fleet with the model and the arguments that were saved"
            raise CheckpointError(f"is of another fleet: {problem}; {advice}")
        files = tuple((str(name), str(digest)) for name, digest in header["files"])
        if any(not _SHARD.fullmatch(name) for name, _ in files):
            raise CheckpointError("is damaged: it names a file that is no shard")
    return Saved(_digest(path), files, np.zeros(0, np.int64)), header


def contents(folder: str, saved: Saved, width: int) -> Iterator[tuple[Names, np.ndarray, Columns]]:
    """Yield the names, the packed states and the columns of each shard."""
    for number, (name, digest) in enumerate(saved.files):
        path = os.path.join(folder, name)
        with _refusing(path):
            header, arrays = archive.read(path)
            if _digest(path) != digest or header.get("shard") != number:
                raise CheckpointError("is not the file that the manifest names")
            names, words = _names(arrays["names"], arrays["long"].tobytes()), arrays["words"]
            columns = {
                name.removeprefix(_COLUMN): array
                for name, array in arrays.items()
                if name.startswith(_COLUMN)
            }
            lengths = {len(names), *map(len, columns.values())}
            if words.shape != (len(names), width) or len(lengths) > 1:
                raise CheckpointError("is damaged: its arrays do not fit each other")
        yield names, words, columns


def _names(words: np.ndarray, contents: bytes) -> Names:
    """Return the names of a shard; ``contents`` are those of long names, one after the other."""
    lengths = (words[:, 0] >> np.uint64(8)).astype(np.int64)
    long, start = {}, 0
    for row in np.flatnonzero(lengths > LONG).tolist():
        long[row] = contents[start : start + int(lengths[row])]
        start += int(lengths[row])
    if start != len(contents) or words_of(lengths).max(initial=0) >= words.shape[1]:
        raise CheckpointError("is damaged: its names do not fit each other")
    return Names(words, long)


def _digest(path: str) -> str:
    """Return the digest at the end of an archive."""
    with open(path, "rb") as file:
        file.seek(-_DIGEST, os.SEEK_END)
        return file.read().decode("ascii", "replace")


def _remove_others(folder: str, names: set[str]) -> None:
    """Remove shards that the manifest does not name: they are of an earlier state."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if _SHARD.fullmatch(name) and name not in names:
                os.unlink(os.path.join(folder, name))


@contextlib.contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Make every error that the contents of a file lead to a CheckpointError with its path."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{path} {error}") from error.__cause__
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as part of a fleet ({error})") from error
