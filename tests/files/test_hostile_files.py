"""CSV and Parquet files that are damaged, absurd or made to do harm: refused with a sentence, or
read, within a second and 200 MB.

Everything is read in processes of their own, which say what each file came to: a crash or a hang of
the parser would be seen, and memory is measured from where it stood with the undamaged file.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import memory

import jboost as jb
from jboost.files.columns import DataError
from jboost.files.sources import read
from jboost.running.stream import run_stream

pa = pytest.importorskip("pyarrow")
text = pytest.importorskip("pyarrow.csv")
pq = pytest.importorskip("pyarrow.parquet")

SECONDS, MEGABYTES = 10.0, 200.0  # what is no hang; the summary says what it was
ROWS = 200
CORES = "64"  # as Arrow is told: what grows with them must stay within the same line
PARQUET: dict[str, dict[str, Any]] = {
    "plain": {"compression": "none", "use_dictionary": False, "row_group_size": 70},
    "snappy": {"compression": "snappy", "row_group_size": 70},
    "zstd": {"compression": "zstd", "data_page_version": "2.0"},
    "sums": {"compression": "gzip", "write_page_checksum": True},
}
KINDS = ("csv", "gzip", *PARQUET)


def table(rows: int = ROWS) -> Any:
    """Numbers, whole numbers, truth values, text and gaps."""
    rng = np.random.default_rng(0)
    a, y = rng.normal(size=(2, rows)).round(4)
    return pa.table(
        {
            "a": pa.array(a, mask=a > 1.5),
            "n": rng.integers(0, 9, rows),
            "b": a > 0,
            "word": rng.choice(["red", "green", "blue"], rows).tolist(),
            "y": pa.array(y, mask=y > 2),
        }
    )


def undamaged(kind: str) -> bytes:
    file = io.BytesIO()
    if kind in PARQUET:
        pq.write_table(table(), file, **PARQUET[kind])
        return file.getvalue()
    text.write_csv(table(), file)
    return gzip.compress(file.getvalue(), mtime=0) if kind == "gzip" else file.getvalue()


# --- what may become of a file --------------------------------------------------------------------

INSERTED = (
    *(b'"', b"'", b",", b"\n", b"\r", b"\r\n", b"\0", b"\0" * 8, b"\n" * 50, b'"' + b"," * 3000),
    *(b"nan", b"inf", b"1e999", b"-1e308", b"9" * 400, b"0x1p3", b"1_0", b"a" * 70_000),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x28", b"\xf0\x9f", b"\x1b[2J", b"\xe2\x80\xae"),
)  # fmt: skip
LENGTHS = (0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1)


def damaged(good: bytes, seed: int) -> bytes:
    """A file that something has happened to, mostly once."""
    rng, data = random.Random(seed), bytearray(good)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if data:
                data[place % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[place % len(data)] = rng.randrange(256)
            case 2:
                data[place:place] = rng.choice(INSERTED)
            case 3:
                del data[place : place + rng.randrange(1, 60)]
            case 4:
                other = rng.randrange(len(data) + 1)
                data[place:place] = data[other : other + rng.randrange(1, 60)]
            case 5:
                del data[place:]
            case 6:  # a length, as the last bytes of Parquet and gzip are, or one anywhere
                at = rng.choice((len(data) - 8, len(data) - 4, place))
                data[max(at, 0) : max(at, 0) + 4] = rng.choice(LENGTHS).to_bytes(4, "little")
    return bytes(data)


def whole_number(value: int) -> bytes:
    """As Parquet's metadata have it: zigzag, seven bits a byte."""
    value, out = value << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def claiming(rows: int) -> bytes:
    """Parquet whose metadata say so many rows, wherever they say it."""
    good = undamaged("zstd")
    size = int.from_bytes(good[-8:-4], "little")
    body, footer = good[: -8 - size], good[-8 - size : -8]
    false = footer.replace(b"\x16" + whole_number(ROWS), b"\x16" + whole_number(rows))
    assert false != footer
    return body + false + len(false).to_bytes(4, "little") + b"PAR1"


def wide(head: str, row: str, columns: int = 16_000) -> bytes:
    names = ",".join(head.format(i) for i in range(columns))
    return f"{names},y\n{row * columns}1\n{row * columns}x\n".encode()


def packed(**columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, compression="zstd")
    return file.getvalue()


def repeated() -> bytes:
    """A text of a megabyte, hundreds of times: a file of a few kilobytes."""
    file = io.BytesIO()
    words = pa.array(["a" * 2**20]).take(pa.array(np.zeros(200, np.int64)))
    with pq.ParquetWriter(
        file, pa.schema([("word", pa.string()), ("y", pa.float64())]), store_schema=False,
        compression="zstd",
    ) as writer:  # fmt: skip
        for _ in range(3):
            writer.write_table(pa.table({"word": words, "y": np.zeros(200)}))
    return file.getvalue()


GOOD = b"a,b,y\n" + b"1,2,3\n" * 50
# Each with words of the sentence that refuses it; None where it can be read.
MADE: dict[str, tuple[Any, str | None]] = {
    "a line without end": (lambda: b"a,y\n" + b"1" * 2**25, "line 2 is longer than 16 MB"),
    "a header without end": (lambda: b"a" * 2**25, "line 1 is longer than 16 MB"),
    "a long field": (lambda: GOOD + b"1," + b"2" * 2**22 + b",3\n", None),
    "a long text": (lambda: GOOD + b"1," + b"x" * 2**22 + b",3\n", "larger than field limit"),
    "a quote never closed": (lambda: GOOD + b'1,"2,3\n' + b"1,2,3\n" * 100_000, "line 52 has 2"),
    "quotes only": (lambda: b"a,b,y\n" + b'"' * 2**22, "line 2"),
    "commas only": (lambda: b"a,b,y\n" + b"," * 2**23, "line 2 has 8,388,609 fields"),
    "a header of commas": (lambda: b"," * 2**23 + b"\n", "8,388,609 columns; at most 16,384"),
    "blank lines": (lambda: b"a,y\n" + b"\n" * 2**24, "a header, in line 1, and no rows"),
    "many columns, one wrong": (lambda: wide("c{}", "1,"), "the target 'y' must hold numbers"),
    "many columns, one short": (lambda: wide("c{}", "1,") + b"1\n", "line 4 has 1 fields"),
    "many columns, all alike": (lambda: wide("c", "1,"), "two columns called 'c'"),
    "many columns, no target": (lambda: wide("yy{}", "1,").replace(b",y\n", b",z\n"), "no column"),
    "many columns of text": (lambda: wide("c{}", "t,", 2_000)[:-2] + b"1\n", None),
    "a zip of nothing much": (lambda: gzip.compress(bytes(2**26)), "line 1 has a zero byte"),
    "a zip of one line": (lambda: gzip.compress(b"a,y\n" + b"1" * 2**26), "longer than 16 MB"),
    "half a zip": (lambda: gzip.compress(GOOD)[:-9], "damaged gzip file"),
    "a zip of something else": (lambda: gzip.compress(GOOD)[:10] + bytes(50), "damaged gzip"),
    "a zip with another sum": (lambda: gzip.compress(GOOD)[:-8] + bytes(8), "damaged gzip file"),
    "words for a terminal": (lambda: b"a,b,\x1b[2J\n1,2,3\n", r"no column 'y'.*\\x1b\[2J"),
    "Parquet in name only": (lambda: b"PAR1", "is a damaged Parquet file"),
    "Parquet without an end": (lambda: undamaged("zstd")[:-9], "is a damaged Parquet file"),
    "2^60 rows": (lambda: claiming(2**60), "is a damaged Parquet file"),
    "2^62 rows": (lambda: claiming(2**62), "is a damaged Parquet file"),
    "fewer rows than there are": (lambda: claiming(150), None),
    "a metadata of four gigabytes": (lambda: undamaged("zstd")[:-8] + b"\xff\xff\xff\xffPAR1",
                                     "is a damaged Parquet file"),
    "a text of 100 MB": (lambda: packed(word=["a" * 100_000_000], y=[1.0]),
                         "has rows of 95 MB; at most 16 are read"),
    "long texts": (lambda: packed(word=[f"{i}{'a' * 20_000}" for i in range(1_000)],
                                  y=np.zeros(1_000)), None),
    "one long text, again and again": (repeated, None),
    "two columns of one name": (lambda: two_of_one_name(), "has two columns called 'a'"),
    "lists": (lambda: packed(a=[[1.0], [2.0]], y=[1.0, 2.0]), "neither number nor text"),
}  # fmt: skip


def two_of_one_name() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table([[1.0], [2.0], [3.0]], names=["a", "a", "y"]), file)
    return file.getvalue()


# --- the process that reads them ------------------------------------------------------------------


def came_to(path: Path, model: Any) -> dict[str, Any]:
    """What a user would meet: the sentence of a refusal, or finite predictions."""
    start = time.process_time()
    rows, said = 0, None
    try:
        source = read(path, "y", buckets=4)
        columns = len(source.columns.names)
        for x, d in source:
            took = time.process_time()
            if columns <= 16 and len(d):  # to compile for every width would take all the time
                (part,) = run_stream(model, [(x, d)], ahead=0)
                assert np.isfinite(part.prediction).all()
            rows += len(d)
            start += time.process_time() - took
    except DataError as error:
        said = str(error)
    return {"said": said, "rows": rows, "seconds": time.process_time() - start}


def survey(folder: Path) -> None:
    """Print what each file came to; an error that is not the library's own ends the process."""
    model = jb.NLMS(0.5)
    good = sorted(folder.glob("good*"))
    for path in good:
        assert came_to(path, model)["rows"] == ROWS
    for path in sorted({*folder.iterdir()} - {*good}):
        print(path.name, flush=True)
        before = memory.begin()
        print(json.dumps({**came_to(path, model), "grew": memory.peak() - before}), flush=True)


def surveyed(folder: Path, files: Iterable[tuple[str, bytes]], patience: float) -> dict[str, Any]:
    """The survey in a process of its own; a crash or a hang names the file that it came with."""
    for kind in KINDS:
        (folder / f"good {kind}").write_bytes(undamaged(kind))
    for name, content in files:
        (folder / name).write_bytes(content)
    here = Path(__file__)
    code = (
        f"import sys, pathlib; sys.path.insert(0, {str(here.parent)!r}); "
        f"import {here.stem} as here; here.survey(pathlib.Path({str(folder)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True,
        timeout=patience, env=os.environ | memory.ENVIRONMENT | {"OMP_NUM_THREADS": CORES},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{lines[-1:]}: {done.stderr[-2000:]}"
    found = {name: json.loads(line) for name, line in zip(lines[::2], lines[1::2], strict=True)}
    for one in found.values():
        assert one["seconds"] < SECONDS and one["grew"] < MEGABYTES, one
        said = one["said"]
        assert said is None or (said.isprintable() and len(said) < 400), one
    return found


def fuzzed(kinds: Iterable[str], folder: Path, seeds: range, patience: float) -> None:
    """Most are refused, and some are read: a digit that became another is still a number."""
    files = ((f"{kind} {n}", damaged(undamaged(kind), n)) for kind in kinds for n in seeds)
    outcomes = surveyed(folder, files, patience)
    for kind in kinds:
        found = [outcomes[f"{kind} {n}"] for n in seeds]
        refused = sum(one["said"] is not None for one in found)
        assert refused > len(found) // 2
        assert refused < len(found) or kind in ("gzip", "sums")  # what has a checksum
        print(
            f"{kind}: {len(found):,} files, {refused:,} refused; at most "
            f"{max(one['seconds'] for one in found):.2f} s of processor time each, and "
            f"{max(one['grew'] for one in found):.0f} MB at most"
        )


def test_damaged_files(tmp_path: Path) -> None:
    fuzzed(KINDS, tmp_path, range(60), patience=120)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_damaged_files(kind: str, tmp_path: Path) -> None:
    fuzzed([kind], tmp_path, range(1_000, 6_000), patience=3_000)


SMALL = """
import sys
from jboost.files.sources import read
from support.memory import peak
def rows():
    return sum(len(d) for _, d in read(sys.argv[1], "y"))
assert rows() == 200
before = peak()
assert sum(rows() for _ in range(400)) == 400 * 200
print(peak() - before)
"""


@pytest.mark.skipif(not memory.TOLD, reason="the system does not tell")
def test_small_files_do_not_fill_the_memory_of_every_core(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(undamaged("csv"))
    done = subprocess.run(
        [sys.executable, "-c", SMALL, str(tmp_path / "good")], capture_output=True, text=True,
        check=True, env=os.environ | memory.ENVIRONMENT | {"OMP_NUM_THREADS": CORES},
    )  # fmt: skip
    assert float(done.stdout) < 10


def test_files_made_to_do_harm(tmp_path: Path) -> None:
    files = ((name, make()) for name, (make, _) in MADE.items())
    found = surveyed(tmp_path, files, patience=120)
    for name, (_, words) in MADE.items():
        said = found[name]["said"]
        if words is None:
            assert said is None and found[name]["rows"] > 0, (name, said)
        else:
            assert said is not None and re.search(words, said), (name, said)
