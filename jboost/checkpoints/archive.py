"""The file format of a checkpoint: a JSON header and named arrays, in a strict form of ``.npz``.

The file is an uncompressed zip of ``jboost.json`` and ``.npy`` files, so that ``numpy.load`` and
any unzip can read it. Its last 64 bytes, the end of the zip's comment, are the SHA-256 of all bytes
before them. Header and arrays determine every byte of the file, and :func:`read` accepts no other
bytes: it compares the sizes that the header claims with the size of the file, and then digests. It
interprets no zip directory, array header or pickle, and takes memory only for bytes that are there.
"""

import hashlib
import io
import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, BinaryIO

import jax.numpy as jnp
import numpy as np

from jboost.checkpoints.atomic import PathLike

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]
Entry = tuple[str, str, tuple[int, ...]]  # in the header's list of arrays: name, dtype and shape

FORMAT = 1  # raised when files change in a way that older releases would misread
LARGEST_FILE = 2**32 - 1  # where zip's 32-bit offsets end
LARGEST_HEADER = 2**22  # parsed JSON takes up to 25 times its text, so 100 MB at worst
LARGEST_COUNT = 2**16 - 2  # of arrays, where zip's 16-bit counter ends
LARGEST_RANK = 32  # dimensions of an array, as in NumPy before version 2

_WHOLE = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_REAL = "float16 bfloat16 float32 float64 complex64 complex128"
DTYPES = {name: np.dtype(jnp.dtype(name)) for name in f"{_WHOLE} {_REAL}".split()}

_FIRST, _MARK, _HEX = b"jboost.json", b"sha256:", 64
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_PLAIN = (20, 0, 0, 0, 33)  # zip 2.0, no flags, not compressed, midnight of 1 January 1980

OTHER_FILE = "Give the path of a file that save wrote"
_ADVICE = "Load an earlier copy, or start the run anew"


class CheckpointError(ValueError):
    """A file cannot be loaded as a checkpoint; the message says why, and what to do."""


def write(file: BinaryIO, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a header that JSON can hold and arrays whose dtypes are among ``DTYPES``."""
    raw, digest = encode(header, arrays), hashlib.sha256()
    for data in _contents(raw, arrays):
        file.write(data)
        digest.update(data)
    file.write(digest.hexdigest().encode())


def encode(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], room: int = 0) -> bytes:
    """The header as it is in the file; an error if header or arrays are too large for a file.

    ``room`` is by how many bytes the header may have to grow.
    """
    table = [(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    full = {"format": FORMAT, "library": version("jboost"), **header, "arrays": table}
    raw = json.dumps(full, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(raw) + room > LARGEST_HEADER:
        raise ValueError(
            f"the description takes {len(raw):,} bytes, and a checkpoint has {LARGEST_HEADER:,} "
            "for it; shorten what is long in it, such as extra or the names of columns"
        )
    total = _file_size(len(raw), table)
    if total > LARGEST_FILE or len(table) > LARGEST_COUNT:
        raise ValueError(f"{len(table)} arrays and {total} bytes are too much for one file of 4 GB")
    return raw


def read(path: PathLike) -> tuple[Header, Arrays]:
    """Read the header and the arrays of a file that :func:`write` wrote and nobody changed."""
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise CheckpointError(f"is not a regular file. {OTHER_FILE}")
        raw, header = _read_header(file)
        table = _table(header)
        total = _file_size(len(raw), table)
        size = os.fstat(file.fileno()).st_size
        if size < total:
            raise CheckpointError(f"is truncated: {size} of {total} bytes are there. {_ADVICE}")
        if size > total:
            raise CheckpointError(f"is damaged: it has {size - total} bytes too many. {_ADVICE}")
        if size > LARGEST_FILE:
            raise CheckpointError("is no jboost checkpoint: it is larger than any can be")
        file.seek(0)
        starts = range(0, total - _HEX, 2**20)  # a megabyte at a time
        digest = _digest(file.read(min(2**20, total - _HEX - start)) for start in starts)
        if file.read(_HEX) != digest:
            raise CheckpointError(f"is damaged: its checksum does not match. {_ADVICE}")
        file.seek(_LOCAL.size + len(_FIRST) + len(raw))
        arrays = {name: _read_array(file, name, dtype, shape) for name, dtype, shape in table}
    # The bytes that are neither header nor numbers were not read: they must be those of `write`.
    if _digest(_contents(raw, arrays)) != digest:
        raise CheckpointError("is no jboost checkpoint, though it looks like one: do not trust it")
    return header, arrays


def _without_waiting(name: str, flags: int) -> int:
    """Open a file; a pipe would wait until somebody writes to it."""
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _read_header(file: BinaryIO) -> tuple[bytes, Header]:
    start = file.read(_LOCAL.size + len(_FIRST))
    if not start:
        raise CheckpointError(f"is empty. {_ADVICE}")
    if start[:4] != b"PK\3\4" or start[_LOCAL.size :] != _FIRST:
        kind = "a zip or npz file of something else" if start[:2] == b"PK" else "something else"
        kind += f", or has lost its beginning. {OTHER_FILE}"
        raise CheckpointError(f"is no jboost checkpoint but {kind}")
    length = _LOCAL.unpack_from(start)[8]
    if length > LARGEST_HEADER:
        raise CheckpointError(f"is damaged: its header claims {length} bytes. {_ADVICE}")
    raw = file.read(length)
    if len(raw) < length:
        raise CheckpointError(f"is truncated within its header. {_ADVICE}")
    try:
        # NaN and Infinity, which are no JSON, raise a KeyError.
        header = json.loads(raw.decode("ascii"), parse_constant={}.__getitem__)
        number = header["format"]
        if type(number) is not int or number < 1:
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CheckpointError(f"is damaged: its header cannot be read. {_ADVICE}") from None
    if number > FORMAT:  # before the checksum, which another format may keep elsewhere
        raise CheckpointError(
            f"has format {number}, by jboost {header.get('library')!s:.20}, newer than the format "
            f"{FORMAT} that this jboost {version('jboost')} can read. Upgrade jboost to load it"
        )
    return raw, header


def _table(header: Header) -> list[Entry]:
    """Return the header's list of arrays, checked: sizes are possible, and no name occurs twice."""
    try:
        if len(header["arrays"]) > LARGEST_COUNT:
            raise ValueError
        table = [(name, dtype, tuple(shape)) for name, dtype, shape in header["arrays"]]
        for name, dtype, shape in table:
            name.encode("ascii")
            whole = all(type(n) is int and n >= 0 for n in shape) and len(shape) <= LARGEST_RANK
            if not whole or DTYPES[dtype].itemsize * math.prod(n or 1 for n in shape) >= 2**63:
                raise ValueError
        if len({name for name, _, _ in table}) < len(table):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CheckpointError(f"is damaged: its list of arrays is wrong. {_ADVICE}") from None
    return table


def _file_size(header_size: int, table: list[Entry]) -> int:
    size = _LOCAL.size + _CENTRAL.size + 2 * len(_FIRST) + header_size
    for name, dtype, shape in table:
        size += _LOCAL.size + _CENTRAL.size + 2 * len(f"{name}.npy")
        size += len(_npy_head(dtype, shape)) + DTYPES[dtype].itemsize * math.prod(shape)
    return size + _END.size + len(_MARK) + _HEX


def _contents(header: bytes, arrays: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """Yield all bytes of the file in order, except the digest of them at the end."""
    members: list[tuple[bytes, bytes, bytes | memoryview]] = [(_FIRST, header, b"")]
    for name, array in arrays.items():
        head = _npy_head(array.dtype.name, array.shape)
        members.append((f"{name}.npy".encode("ascii"), head, _numbers(array)))
    directory, position = bytearray(), 0
    for name, head, numbers in members:
        crc, size = zlib.crc32(numbers, zlib.crc32(head)), len(head) + len(numbers)
        sizes = (*_PLAIN, crc, size, size, len(name))
        yield _LOCAL.pack(b"PK\3\4", *sizes, 0) + name + head
        yield numbers
        directory += _CENTRAL.pack(b"PK\1\2", 20, *sizes, 0, 0, 0, 0, 0, position) + name
        position += _LOCAL.size + len(name) + size
    counts = (len(members), len(members), len(directory), position, len(_MARK) + _HEX)
    yield bytes(directory) + _END.pack(b"PK\5\6", 0, 0, *counts) + _MARK


def _stored(dtype: np.dtype) -> np.dtype:
    """Return the dtype in the file: little-endian, and unsigned integers for bfloat16."""
    return np.dtype(f"<u{dtype.itemsize}") if dtype.kind == "V" else dtype.newbyteorder("<")


def _npy_head(dtype: str, shape: tuple[int, ...]) -> bytes:
    descr = _stored(DTYPES[dtype]).str
    text = repr({"descr": descr, "fortran_order": False, "shape": shape})
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii")


def _numbers(array: np.ndarray) -> memoryview:
    """Return the bytes of an array as the file has them, without a copy where memory has them."""
    stored = _stored(array.dtype)
    array = np.asarray(array, order="C")
    array = array.view(stored) if array.dtype.kind == "V" else array.astype(stored, copy=False)
    return array.reshape(-1).view(np.uint8).data


def _read_array(
    file: io.BufferedReader, name: str, dtype_name: str, shape: tuple[int, ...]
) -> np.ndarray:
    """Read the next member of the zip, of which only the numbers are taken."""
    file.seek(_LOCAL.size + len(f"{name}.npy") + len(_npy_head(dtype_name, shape)), os.SEEK_CUR)
    dtype = DTYPES[dtype_name]
    array = np.empty(shape, _stored(dtype))
    file.readinto(array.reshape(-1).view(np.uint8).data)
    return array.view(dtype) if dtype.kind == "V" else array.astype(dtype, copy=False)


def _digest(contents: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.sha256()
    for data in contents:
        digest.update(data)
    return digest.hexdigest().encode()
