"""Damaged, absurd and harmful CSV and Parquet files: each is read, or refused with a sentence.

Either takes at most 10 seconds and 200 MB. The files are read in a process for themselves, which
prints the outcome of each file: a crash or a hang of the parser names its file. Memory is measured
against the memory that the undamaged files took.
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

SECONDS, MEGABYTES = 10.0, 200.0  # at most, for a file; the summary prints what it took
ROWS = 200
CORES = "64"  # as Arrow sees it: memory that grows with the cores must stay in bounds
PARQUET: dict[str, dict[str, Any]] = {
    "plain": {"compression": "none", "use_dictionary": False, "row_group_size": 70},
    "snappy": {"compression": "snappy", "row_group_size": 70},
    "zstd": {"compression": "zstd", "data_page_version": "2.0"},
    "sums": {"compression": "gzip", "write_page_checksum": True},
}
KINDS = ("csv", "json", "gzip", "zst", *PARQUET)


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
    if kind == "json":
        return b"".join(json.dumps(row).encode() + b"\n" for row in table().to_pylist())
    text.write_csv(table(), file)
    if kind == "zst":
        return pa.compress(file.getvalue(), "zstd", asbytes=True)
    return gzip.compress(file.getvalue(), mtime=0) if kind == "gzip" else file.getvalue()


# --- how files are damaged -----------------------------------------------------------------------

INSERTED = (
    *(b'"', b"'", b",", b"\n", b"\r", b"\r\n", b"\0", b"\0" * 8, b"\n" * 50, b'"' + b"," * 3000),
    *(b"nan", b"inf", b"1e999", b"-1e308", b"9" * 400, b"0x1p3", b"1_0", b"a" * 70_000),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x28", b"\xf0\x9f", b"\x1b[2J", b"\xe2\x80\xae"),
)  # fmt: skip
LENGTHS = (0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1)


def damaged(good: bytes, seed: int) -> bytes:
    """The bytes of a good file with random damage, mostly one change."""
    rng, data = random.Random(seed), bytearray(good)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        start = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if data:
                data[start % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[start % len(data)] = rng.randrange(256)
            case 2:
                data[start:start] = rng.choice(INSERTED)
            case 3:
                del data[start : start + rng.randrange(1, 60)]
            case 4:
                other = rng.randrange(len(data) + 1)
                data[start:start] = data[other : other + rng.randrange(1, 60)]
            case 5:
                del data[start:]
            case 6:  # a false length: where Parquet and gzip have lengths, or anywhere
                at = rng.choice((len(data) - 8, len(data) - 4, start))
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


def json_keys(n: int) -> bytes:
    return json.dumps({f"c{i}": 1 for i in range(n)}).encode()[1:-1]


GOOD = b"a,b,y\n" + b"1,2,3\n" * 50
# Each with words of the sentence that refuses it; None where it can be read.
HARMFUL: dict[str, tuple[Any, str | None]] = {
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
    "many columns, one short": (lambda: wide("c{}", "1,")[:-2] + b"1\n1\n", "line 4 has 1 fiel"),
    "many columns, all alike": (lambda: wide("c", "1,"), "the target 'y' must hold numbers"),
    "many columns, no target": (lambda: wide("yy{}", "1,").replace(b",y\n", b",z\n"), "no column"),
    "many columns of text": (lambda: wide("c{}", "t,", 2_000)[:-2] + b"1\n", None),
    "a zip of nothing much": (lambda: gzip.compress(bytes(2**26)), "line 1 has a zero byte"),
    "a zip of one line": (lambda: gzip.compress(b"a,y\n" + b"1" * 2**26), "longer than 16 MB"),
    "half a zip": (lambda: gzip.compress(GOOD)[:-9], "damaged gzip file"),
    "a zip of something else": (lambda: gzip.compress(GOOD)[:10] + bytes(50), "damaged gzip"),
    "a zip with another sum": (lambda: gzip.compress(GOOD)[:-8] + bytes(8), "damaged gzip file"),
    "a zstd of one line": (lambda: pa.compress(b"a,y\n" + b"1" * 2**26, "zstd", asbytes=True),
                           "longer than 16 MB"),
    "a zstd of blank lines": (lambda: pa.compress(b"a,y\n" + b"\n" * 2**27, "zstd", asbytes=True),
                              "a header, in line 1, and no rows"),
    "a zip of JSON": (lambda: gzip.compress(b'{"a": 1, "y": "' + b"x" * 2**26), "than 16 MB"),
    "JSON within JSON": (lambda: b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "is no JSON"),
    "long names around many keys": (
        lambda: b'{"%b": {%b}, "y": 1}' % (b"a" * 10_000, json_keys(10_000)), "too many objects"
    ),
    "JSON of many keys": (lambda: json.dumps({f"c{i}": 1 for i in range(70_000)}).encode(),
                          "has 70,000 columns; at most 16,384"),
    "a number of a million digits": (lambda: b'{"a": 1, "y": 2}\n{"y": 1' + b"0" * 2**20 + b"}",
                                     "line 2 is no JSON: Exceeds the limit"),
    "a zstd of blank JSON": (lambda: pa.compress(b'{"a": 1, "y": 2}\n' + b"\n" * 2**25, "zstd",
                                                 asbytes=True), None),
    "a zip of JSON keys": (lambda: gzip.compress(keys_in_turn(70_000)), "no column .y."),
    "JSON of keys in turn": (lambda: b'{"y": 1}\n' + keys_in_turn(1_000) * 4, None),
    "years without end": (lambda: b"year,month,day,y\n" + b"9" * 18 + b",1,1,1\n" * 3, None),
    "dates without end": (lambda: b"date;time;y\n" + b"31/1/2024;1:00;1\n" * 30 + b"1" * 2**22
                          + b"/1/1;2;3\n", "is no time like"),
    "semicolons only": (lambda: b"a;b;y\n" + b";" * 2**23, "line 2 has 8,388,609 fields"),
    "quotations without end": (lambda: b"a,b,y\n" + b'1,"2,3\n' * 500_001, "has 2 fields"),
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
    "long texts": (lambda: packed(n=np.arange(1_000),
                                  word=[f"{i}{'a' * 20_000}" for i in range(1_000)],
                                  y=np.zeros(1_000)), None),
    "one long text, again and again": (repeated, None),
    "two columns of one name": (lambda: two_of_one_name(), "has two columns called 'a'"),
    "lists": (lambda: packed(a=[[1.0], [2.0]], y=[1.0, 2.0]), "no column besides"),
}  # fmt: skip


def keys_in_turn(count: int) -> bytes:
    """JSON lines of one key each, which all need a column in every row."""
    return b"".join(b'{"c%d": 1}\n' % i for i in range(count))


def two_of_one_name() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table([[1.0], [2.0], [3.0]], names=["a", "a", "y"]), file)
    return file.getvalue()


# --- the process that reads them ------------------------------------------------------------------


def outcome_of(path: Path, model: Any) -> dict[str, Any]:
    """What a user would see: the sentence of a refusal, or finite predictions."""
    start = time.process_time()
    rows, sentence = 0, None
    try:
        source = read(path, "y", buckets=4)
        columns = len(source.columns.names)
        for x, d in source:
            took = time.process_time()
            if columns <= 16 and len(d):  # to compile for every width would take all the time
                (block,) = run_stream(model, [(x, d)], ahead=0)
                assert np.isfinite(block.prediction).all()
            rows += len(d)
            start += time.process_time() - took
    except DataError as error:
        sentence = str(error)
    return {"sentence": sentence, "rows": rows, "seconds": time.process_time() - start}


def survey(folder: Path) -> None:
    """Print the outcome of each file; an error other than DataError ends the process."""
    model = jb.NLMS(0.5)
    good = sorted(folder.glob("good*"))
    for path in good:
        assert outcome_of(path, model)["rows"] == ROWS
    for path in sorted({*folder.iterdir()} - {*good}):
        print(path.name, flush=True)
        before = memory.begin()
        print(json.dumps({**outcome_of(path, model), "grew": memory.peak() - before}), flush=True)


def surveyed(folder: Path, files: Iterable[tuple[str, bytes]], patience: float) -> dict[str, Any]:
    """The survey in a new process; the error of a crash or a hang names the file."""
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
    outcomes = {name: json.loads(line) for name, line in zip(lines[::2], lines[1::2], strict=True)}
    for outcome in outcomes.values():
        assert outcome["seconds"] < SECONDS and outcome["grew"] < MEGABYTES, outcome
        sentence = outcome["sentence"]
        assert sentence is None or (sentence.isprintable() and len(sentence) < 400), outcome
    return outcomes


def fuzzed(kinds: Iterable[str], folder: Path, seeds: range, patience: float) -> None:
    """Most files are refused, and some are read: a changed digit is still a number."""
    files = ((f"{kind} {n}", damaged(undamaged(kind), n)) for kind in kinds for n in seeds)
    outcomes = surveyed(folder, files, patience)
    for kind in kinds:
        of_kind = [outcomes[f"{kind} {n}"] for n in seeds]
        refused = sum(outcome["sentence"] is not None for outcome in of_kind)
        assert refused > len(of_kind) // 2
        assert refused < len(of_kind) or kind in ("gzip", "zst", "sums")  # they have checksums
        print(
            f"{kind}: {len(of_kind):,} files, {refused:,} refused; at most "
            f"{max(outcome['seconds'] for outcome in of_kind):.2f} s of processor time each, and "
            f"{max(outcome['grew'] for outcome in of_kind):.0f} MB at most"
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
    files = ((name, make()) for name, (make, _) in HARMFUL.items())
    outcomes = surveyed(tmp_path, files, patience=120)
    for name, (_, words) in HARMFUL.items():
        sentence = outcomes[name]["sentence"]
        if words is None:
            assert sentence is None and outcomes[name]["rows"] > 0, (name, sentence)
        else:
            assert sentence is not None and re.search(words, sentence), (name, sentence)
