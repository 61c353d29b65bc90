"""The container of a checkpoint: a JSON header and named arrays, in one exact form of `.npz`.

The file is an uncompressed zip whose first member is ``jboost.json`` and whose others are `.npy`,
so that ``numpy.load`` and any unzip can read it. Its last 64 bytes, the end of the zip's comment,
are the SHA-256 of all bytes before them. There is one way to lay out given contents, byte for byte,
and :func:`read` accepts nothing else: it takes the sizes from the header, holds them against the
size of the file, and then compares digests. No zip directory, array header or pickle is ever
interpreted, and no memory is taken that the file does not back with bytes of its own.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import jax.numpy as jnp
import numpy as np

import jboost
from jboost.checkpoints.atomic import PathLike

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]

FORMAT = 1  # raised when files change in a way that older releases would misread
LARGEST_FILE = 2**32 - 1  # where zip's 32-bit offsets end
LARGEST_HEADER = 2**21  # parsed JSON takes up to 25 times its text, so 50 MB at worst
LARGEST_COUNT = 2**16 - 2  # of arrays: where zip's 16-bit counter ends
LARGEST_RANK = 32

_WHOLE = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_REAL = "float16 bfloat16 float32 float64 complex64 complex128"
DTYPES = {name: np.dtype(jnp.dtype(name)) for name in f"{_WHOLE} {_REAL}".split()}

_FIRST = b"jboost.json"
_MARK = b"sha256:"
_HEX = 64
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_PLAIN = (20, 0, 0, 0, 33)  # zip 2.0, no flags, stored, midnight of 1 January 1980

_EARLIER = "Load an earlier copy, or start the run anew"


class CheckpointError(ValueError):
    """A file is no checkpoint that can be loaded here; the message says why, and what to do."""


class Entry(NamedTuple):
    """What the header says of one array."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of its numbers: exact for any claim, however large."""
        return DTYPES[self.dtype].itemsize * math.prod(self.shape)


def write(file: BinaryIO, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a header and arrays of any of ``DTYPES``; the same contents make the same bytes."""
    table = [Entry(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    full = {"format": FORMAT, "library": jboost.__version__, **header, "arrays": table}
    raw = json.dumps(full, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(raw) > LARGEST_HEADER:
        raise ValueError(f"the description takes {len(raw)} bytes; at most {LARGEST_HEADER} fit")
    total = _layout(len(raw), table)[1]
    if total > LARGEST_FILE or len(table) > LARGEST_COUNT:
        raise ValueError(f"{len(table)} arrays and {total} bytes are too much for one file of 4 GB")
    digest = hashlib.sha256()
    for piece in _pieces(raw, arrays):
        file.write(piece)
        digest.update(piece)
    file.write(digest.hexdigest().encode())


def read(path: PathLike) -> tuple[Header, Arrays]:
    """The header and the arrays of a file that :func:`write` wrote, unchanged since."""
    with _open(path) as file:
        raw, header = _read_header(file)
        table = _table(header)
        offsets, total = _layout(len(raw), table)
        size = os.fstat(file.fileno()).st_size
        if size < total:
            raise CheckpointError(f"is truncated: {size} of {total} bytes are there. {_EARLIER}")
        if size > total:
            raise CheckpointError(f"is damaged: it has {size - total} bytes too many. {_EARLIER}")
        if size > LARGEST_FILE:
            raise CheckpointError("is no jboost checkpoint: it is larger than any can be")
        file.seek(0)
        digest = _digest(_chunks(file, total - _HEX))
        if file.read(_HEX) != digest:
            raise CheckpointError(f"is damaged: its checksum does not match. {_EARLIER}")
        arrays = {}
        for entry, offset in zip(table, offsets, strict=True):
            file.seek(offset)
            arrays[entry.name] = _read_array(file, entry)
    # Everything that is neither header nor numbers must be what `write` would have put there.
    if _digest(_pieces(raw, arrays)) != digest:
        raise CheckpointError("is no jboost checkpoint, though it looks like one: do not trust it")
    return header, arrays


def _open(path: PathLike) -> io.BufferedReader:
    # Not waiting matters where the path is a pipe, which would have no end.
    wait = getattr(os, "O_NONBLOCK", 0)
    try:
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | wait))  # noqa: SIM115
    except IsADirectoryError:
        raise CheckpointError("is a folder. Give the path of a file that save wrote") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise CheckpointError("is not a regular file. Give the path of a file that save wrote")
    return file


def _read_header(file: BinaryIO) -> tuple[bytes, Header]:
    start = file.read(_LOCAL.size + len(_FIRST))
    if not start:
        raise CheckpointError(f"is empty. {_EARLIER}")
    if start[:4] != b"PK\3\4" or start[_LOCAL.size :] != _FIRST:
        kind = "a zip or npz file of something else" if start[:2] == b"PK" else "something else"
        raise CheckpointError(
            f"is no jboost checkpoint but {kind}, or has lost its beginning. "
            "Give the path of a file that save wrote"
        )
    length = _LOCAL.unpack_from(start)[8]
    if length > LARGEST_HEADER:
        raise CheckpointError(f"is damaged: its header claims {length} bytes. {_EARLIER}")
    raw = file.read(length)
    if len(raw) < length:
        raise CheckpointError(f"is truncated within its header. {_EARLIER}")
    try:
        header = json.loads(raw.decode("ascii"), parse_constant=_no_constant)
        number = header["format"]
        if type(number) is not int or number < 1:
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CheckpointError(f"is damaged: its header cannot be read. {_EARLIER}") from None
    if number > FORMAT:  # before the checksum, which another format may keep elsewhere
        raise CheckpointError(
            f"has format {number}, by jboost {header.get('library')!s:.20}, newer than this jboost "
            f"{jboost.__version__} can read, which is format {FORMAT}. Upgrade jboost to load it"
        )
    return raw, header


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _table(header: Header) -> list[Entry]:
    """The header's list of arrays, every entry of the right form and every name only once."""
    try:
        if len(header["arrays"]) > LARGEST_COUNT:
            raise ValueError
        table = [Entry(name, dtype, tuple(shape)) for name, dtype, shape in header["arrays"]]
        for name, dtype, shape in table:
            name.encode("ascii")
            whole = all(type(n) is int and n >= 0 for n in shape) and len(shape) <= LARGEST_RANK
            if not whole or DTYPES[dtype].itemsize * math.prod(n or 1 for n in shape) >= 2**63:
                raise ValueError
        if len({entry.name for entry in table}) < len(table):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CheckpointError(f"is damaged: its list of arrays is wrong. {_EARLIER}") from None
    return table


def _layout(header_size: int, table: list[Entry]) -> tuple[list[int], int]:
    """Where the numbers of each array begin, and the size of the whole file."""
    position = _LOCAL.size + len(_FIRST) + header_size
    directory = _CENTRAL.size + len(_FIRST)
    offsets = []
    for entry in table:
        name = len(entry.name) + len(".npy")
        offsets.append(position + _LOCAL.size + name + len(_npy_head(entry)))
        position = offsets[-1] + entry.size
        directory += _CENTRAL.size + name
    return offsets, position + directory + _END.size + len(_MARK) + _HEX


def _pieces(header: bytes, arrays: Mapping[str, np.ndarray]) -> Iterator[Any]:
    """All bytes of the file, in order, up to the digest of them."""
    members: list[tuple[bytes, list[Any]]] = [(_FIRST, [header])]
    for name, array in arrays.items():
        head = _npy_head(Entry(name, array.dtype.name, array.shape))
        members.append((f"{name}.npy".encode("ascii"), [head, _numbers(array)]))
    directory, position = bytearray(), 0
    for name, parts in members:
        crc, size = 0, sum(len(part) for part in parts)
        for part in parts:
            crc = zlib.crc32(part, crc)
        sizes = (*_PLAIN, crc, size, size, len(name))
        yield _LOCAL.pack(b"PK\3\4", *sizes, 0) + name
        yield from parts
        directory += _CENTRAL.pack(b"PK\1\2", 20, *sizes, 0, 0, 0, 0, 0, position) + name
        position += _LOCAL.size + len(name) + size
    yield bytes(directory)
    count = len(members)
    comment = len(_MARK) + _HEX
    yield _END.pack(b"PK\5\6", 0, 0, count, count, len(directory), position, comment)
    yield _MARK


def _stored(dtype: np.dtype) -> np.dtype:
    """The dtype in the file: little-endian, and plain bits for what numpy itself does not know."""
    return np.dtype(f"<u{dtype.itemsize}") if dtype.kind == "V" else dtype.newbyteorder("<")


def _npy_head(entry: Entry) -> bytes:
    descr = _stored(DTYPES[entry.dtype]).str
    text = repr({"descr": descr, "fortran_order": False, "shape": entry.shape})
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii")


def _numbers(array: np.ndarray) -> memoryview:
    """The bytes of an array as they stand in the file; its own memory where that is so already."""
    stored = _stored(array.dtype)
    array = np.asarray(array, order="C")
    array = array.view(stored) if array.dtype.kind == "V" else array.astype(stored, copy=False)
    return array.reshape(-1).view(np.uint8).data


def _read_array(file: io.BufferedReader, entry: Entry) -> np.ndarray:
    dtype = DTYPES[entry.dtype]
    array = np.empty(entry.shape, _stored(dtype))
    file.readinto(array.reshape(-1).view(np.uint8).data)
    return array.view(dtype) if dtype.kind == "V" else array.astype(dtype, copy=False)


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0:
        chunk = file.read(min(size, 2**20))
        if not chunk:
            raise CheckpointError(f"became shorter while it was read. {_EARLIER}")
        size -= len(chunk)
        yield chunk


def _digest(pieces: Iterable[Any]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest().encode()
