"""Files are read in blocks, matched by name, and refused with the line that is wrong."""

from __future__ import annotations

import gzip
import importlib
import io
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jboost.files import delimited, sources, tables
from jboost.files import lines as text_lines
from jboost.files.columns import DataError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

GOOD = "a,b,y\n1,2,3\n4,5,6\n7,8,9\n"
LONG = GOOD + "1,2,3\n" * 17  # longer than a block of these tests


def write(folder: Path, text: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def joined(source: Any, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(source(position))
    return np.concatenate([x for x, _ in blocks]), np.concatenate([d for _, d in blocks])


@pytest.fixture
def small_blocks(monkeypatch: Any) -> None:
    """Text is parsed a few lines at a time, so that errors lie in later blocks."""
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 64)


def numbers(rows: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, 3)).round(3).astype(np.float32)


def as_csv(table: np.ndarray, names: str = "a,b,y") -> str:
    return names + "\n" + "".join(",".join(map(str, row)) + "\n" for row in table.tolist())


def test_numbers_come_as_they_are_written(tmp_path: Path, small_blocks: None) -> None:
    table = numbers(100)
    source = sources.read(write(tmp_path, as_csv(table)), "y")
    blocks = list(source)
    assert len(blocks) > 20
    x, d = joined(source)
    assert x.dtype == d.dtype == np.float32
    np.testing.assert_array_equal(x, table[:, :2])
    np.testing.assert_array_equal(d, table[:, 2])


@pytest.mark.parametrize("position", [0, 1, 3, 50, 99, 100])
@pytest.mark.parametrize("kind", ["csv", "blank lines", "gzip", "parquet"])
def test_a_file_goes_on_from_any_row(
    tmp_path: Path, small_blocks: None, kind: str, position: int
) -> None:
    table = numbers(100)
    text = as_csv(table)
    if kind == "blank lines":
        text = text.replace("\n", "\r\n\r\n")
    path = write(tmp_path, gzip.compress(text.encode()) if kind == "gzip" else text)
    if kind == "parquet":
        columns = dict(zip("aby", table.T, strict=True))
        pq.write_table(pa.table(columns), path, row_group_size=30)
    blocks = list(sources.read(path, "y")(position))
    assert sum(len(d) for _, d in blocks) == 100 - position
    if blocks:
        np.testing.assert_array_equal(np.concatenate([x for x, _ in blocks]), table[position:, :2])


@pytest.mark.parametrize("position", [0, 321])
@pytest.mark.parametrize("kind", ["csv", "gzip", "parquet"])
def test_the_number_of_rows_is_estimated(
    tmp_path: Path, monkeypatch: Any, kind: str, position: int
) -> None:
    """A display of progress tells the part that is done; the end of a file tells it exactly."""
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 2000)
    table = numbers(5000)
    text = as_csv(table).encode()
    path = write(tmp_path, gzip.compress(text) if kind == "gzip" else text)
    if kind == "parquet":
        pq.write_table(pa.table(dict(zip("aby", table.T, strict=True))), path)
    source = sources.read(path, "y")
    totals = [source.total for _ in source(position)]
    if kind != "gzip":  # which reads ahead
        np.testing.assert_allclose(totals[1:], 5000, rtol=0.05)
    assert source.total == 5000


def test_the_number_of_rows_of_a_pipe_is_unknown(tmp_path: Path, monkeypatch: Any) -> None:
    read, written = os.pipe()
    os.write(written, LONG.encode())
    os.close(written)
    with open(read) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        source = sources.read("-", "y")
        assert [source.total for _ in source] == [None]
    assert sources.read(numbers(9), "3").total is None


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="the system does not tell")
@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_is_open_only_while_it_is_read(
    tmp_path: Path, small_blocks: None, zipped: bool
) -> None:
    text = as_csv(numbers(100)).encode()
    path = write(tmp_path, gzip.compress(text) if zipped else text)

    def is_open() -> bool:
        links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        return any(os.path.realpath(link) == str(path) for link in links)

    source = sources.read(path, "y")
    assert not is_open()
    for _ in range(2):
        blocks = source(0)
        next(blocks)
        assert is_open()
        del blocks
        assert not is_open()


def test_a_position_beyond_the_end_is_another_stream(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data.csv has 3 rows.*had seen 4.*same stream"):
        list(sources.read(write(tmp_path, GOOD), "y")(4))


def test_reordered_columns_are_matched_by_name(tmp_path: Path) -> None:
    first = sources.read(write(tmp_path, GOOD), "y")
    other = write(tmp_path, "new,y,b,a\n0,3,2,1\n0,6,5,4\n0,9,8,7\n", "other.csv")
    again = sources.read(other, columns=first.columns)
    for before, after in zip(joined(first), joined(again), strict=True):
        np.testing.assert_array_equal(after, before)
    table = pa.table({"y": [3.0, 6, 9], "b": [2, 5, 8], "a": [1, 4, 7]})
    pq.write_table(table, tmp_path / "other.parquet")
    np.testing.assert_array_equal(
        joined(sources.read(tmp_path / "other.parquet", columns=first.columns))[0], joined(first)[0]
    )
    lacking = write(tmp_path, "a,c,y\n1,2,3\n", "lacking.csv")
    with pytest.raises(DataError, match=r"lacking.csv has no column 'b'"):
        list(sources.read(lacking, columns=first.columns))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "data.csv is empty$"),
        ("\n\n", "data.csv is empty$"),
        ("a,b,y\n", "a header, in line 1, and no rows"),
        ("a,b,y\n\n\n", "a header, in line 1, and no rows"),
        (GOOD + "1,2\n", r"line 5 has 2 fields where the header has 3"),
        (GOOD + "\n\n1,2,3,4\n", r"line 7 has 4 fields where the header has 3"),
        (GOOD + "1," * 1_000_000 + "\n", r"line 5 has 1,000,001 fields where the header has 3"),
        ("a;b;y\n1;2\n", r"line 1 has one column, 'a;b;y'; is a semicolon the delimiter\? Pass"),
        ("a\tb\ty\n1\t2\n", r"is a tab the delimiter\? Pass --delimiter '\\t'"),
        (LONG + "1,oops,3\n", r"line 22: 'oops' in the column 'b' is not a number"),
        ("a,b,y\n" + "1,true,3\n" * 20 + "1,maybe,3\n", r"line 22: 'maybe' .* not true or false"),
        (LONG + "1,2,oops\n", r"line 22: 'oops' in the column 'y' is not a number"),
        (LONG + "1,\xe9t\xe9,3\n", r"line 22: 'été' in the column 'b' is not a number"),
        ((LONG + "1,\xe9,3\n").encode("latin-1"), r"line 22 is not in UTF-8 \(byte 0xe9"),
        ((GOOD + "1,\xe9,3\n").encode("latin-1"), r"line 5 is not in UTF-8 \(byte 0xe9 at place 3"),
        ("\xe9,y\n1,2\n".encode("latin-1"), r"line 1 is not in UTF-8"),
        (GOOD.encode("utf-16"), "UTF-16; convert it"),
        (b"\x89PNG\r\n\0\0abc", "line 2 has a zero byte: this is no text"),
        ("1,2,3\n4,5,6\n", "line 1 holds numbers where names are wanted; pass --no-header"),
        ("# of station 5\na,y\n1,2\n", "line 1 is a remark, '# of station 5'; a file begins with"),
        (b"PK\3\4rest", "is a zip archive or a workbook; .* save its table as CSV"),
        (b"ARROW1\0\0rest", "is an Arrow file; write its table as Parquet"),
        ("a,b\n1,2\n", "no column 'y'; it has 'a', 'b'"),
        ("a,Y\n1,2\n", r"no column 'y'; did you mean 'Y'\?"),
        ("y\n1\n", "no column besides the target"),
        ("a," * 70_000 + "y\n1\n", "line 1 has 70,001 columns; at most 16,384"),
        ("a,y\n1,x\n2,y\n", "the target 'y' must hold numbers, and holds text"),
        ("a,y\n1,true\n2,false\n", "the target 'y' must hold numbers, and holds true and false"),
        ("a,y\n1,2020-01-01\n", "the target 'y' must hold numbers, and holds text"),
        ("a,y\rb\n1,2\n", "carriage return"),
        ("a,b,y\n1,2,3\n4,5,6\n1,\r2,3\n", "carriage return"),
        ("a,b,y\n1,NA,3\n1,2,3\n1,x,3\n1,3,3\n", "line 4: 'x' is not a number, but most"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_sentence_with_the_line(
    tmp_path: Path, small_blocks: None, text: Any, message: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DataError, match=message) as caught:
        list(sources.read(path, "y"))
    sentence = str(caught.value)
    assert (
        sentence.startswith(str(path))
        and "\n" not in sentence
        and len(sentence) < len(str(path)) + 250
    )


@pytest.mark.parametrize(
    ("text", "decimal", "message"),
    [
        ("a;b;y\n1;0,5;3\n1;0,25;4\n", ".", "line 2: '0,5' in the column 'b' would be a number "
         "if a comma stood before decimals; pass --decimal ',', or correct it, drop the col"),
        ("a;b;y\n1;0.5;3\n1;0.25;4\n", ",", "line 2: '0.5' .* if a point stood before"),
        ("a;b;y\n1;1;3,5\n1;2;4,5\n", ".", "'3,5' in the column 'y' .* --decimal ',', or corr"),
        ("a;b;y\n1;0,5;3\n1;0,25;4\n1;x;4\n", ",", "line 4: 'x' is not a number, but most of"),
        ("a;b;y\n" + "1;0,5;3\n" * 20 + "1;0.5;3\n", ",", "line 22: '0.5' .* is not a number"),
    ],
)  # fmt: skip
def test_another_decimal_sign_makes_no_category(
    tmp_path: Path, small_blocks: None, text: str, decimal: str, message: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DataError, match=message):
        list(sources.read(path, "y", delimiter=";", decimal=decimal))


def test_a_column_of_text_with_signs_is_a_category(tmp_path: Path) -> None:
    path = write(tmp_path, "a;b;y\n1;x,5;3\n1;7,5;4\n1;y;5\n")
    assert sources.read(path, "y", delimiter=";", buckets=2).columns.names == ["a", "b#0", "b#1"]
    path = write(tmp_path, "a;b;y\n1;0,5;3\n")
    assert sources.read(path, "y", delimiter=";", category=["b"], buckets=2).columns.width == 3


def test_a_target_is_no_category(tmp_path: Path, small_blocks: None) -> None:
    for text in ("a,y\n1,2\n1,3\n1,x\n", "a,y\n" + "1,2\n" * 40 + "1,x\n"):
        with pytest.raises(DataError, match=r"'x' .*; correct it, or pass --bad-rows skip$"):
            list(sources.read(write(tmp_path, text), "y"))


def test_what_came_before_a_bad_line_is_handed_on(tmp_path: Path, small_blocks: None) -> None:
    source = sources.read(write(tmp_path, as_csv(numbers(50)) + "1,2\n"), "y")
    seen = 0
    with pytest.raises(DataError, match="line 52 has 2 fields"):
        for _, d in source:
            seen += len(d)
    assert seen > 40


def test_a_line_without_end_takes_no_memory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(text_lines, "LONGEST_ROW", 1000)
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 100)
    with pytest.raises(DataError, match="line 2 is longer than 0 MB: this is no text with rows"):
        list(sources.read(write(tmp_path, "a,y\n" + "1" * 100_000), "y"))


def test_folders_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder without Parquet files; name a file in it"):
        sources.read(tmp_path, "y")
    with pytest.raises(FileNotFoundError):
        sources.read(tmp_path / "no.csv", "y")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(0)
    with pytest.raises(PermissionError):
        sources.read(path, "y")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a;b;y\n1,5;2;3\n", {"delimiter": ";", "decimal": ","}),
        ("1.5,2,3\n", {"header": False, "target": "3"}),
        ("\ufeffa,b,y\n 1.5 ,2.0,3\n", {}),
        ('"a","b",y\r\n1.5,"2","3"', {}),
        ("a,b,y\n1.5,2,3\n".encode("latin-1"), {"encoding": "latin-1"}),
        ("b\xfc,b,y\n1.5,2,3\n".encode("latin-1"), {"encoding": "Latin-1"}),
    ],
)
def test_ways_to_write_the_same(tmp_path: Path, text: Any, options: dict[str, Any]) -> None:
    target = options.pop("target", "y")
    x, d = joined(sources.read(write(tmp_path, text), target, **options))
    assert x.tolist() == [[1.5, 2.0]] and d.tolist() == [3.0]


def test_tabs_are_the_delimiter_of_a_tsv(tmp_path: Path) -> None:
    x, _ = joined(sources.read(write(tmp_path, "a\ty\n1\t2\n", "data.tsv"), "y"))
    assert x.tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": "::"}, "delimiter must be one character of ASCII; got '::'"),
        ({"decimal": "::"}, "decimal must be one character of ASCII; got '::'"),
        ({"encoding": "utf-16"}, "extends ASCII; got 'utf-16'"),
        ({"encoding": "klingon"}, "must be one that Python knows .*; got 'klingon'"),
        ({"missing": "ignore"}, "missing must be one of 'keep', 'skip', 'raise'"),
        ({"buckets": 1}, "buckets must be a whole number >= 2"),
        ({"drop": ["c"]}, "has no column 'c'"),
        ({"ordinal": {"a": ["low"]}}, r"ordinal\['a'\] must be at least two different"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sources.read(write(tmp_path, GOOD), "y", **options)


def test_no_thread_of_arrow_is_the_last_to_let_go_of_a_text(tmp_path: Path) -> None:
    """It would abort the process if that just ended."""
    others: list[int] = []

    class Noted(bytes):
        def __del__(self) -> None:
            if threading.get_ident() != threading.main_thread().ident:
                others.append(threading.get_ident())

    text = as_csv(numbers(20_000)).encode()
    reader = sources.read(write(tmp_path, text), "y")._reader
    for _ in range(20):
        lines = text_lines.Lines(2, Noted(text.partition(b"\n")[2]))
        assert (
            isinstance(reader, delimited.Delimited) and len(lines.text) > delimited.THREADED_BYTES
        )
        assert reader._table(lines, {}).num_rows == 20_000
        del lines
        time.sleep(0.01)
    assert not others


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"a": np.arange(1000.0), "y": np.arange(1000.0)}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is a damaged Parquet file"):
        sources.read(path, "y")
    path.write_bytes(whole[:50] + bytes(2000) + whole[2050:])
    with pytest.raises(DataError, match=r"from row 1 on is a damaged Parquet file"):
        list(sources.read(path, "y"))
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), path)
    with pytest.raises(DataError, match="has no rows"):
        sources.read(path, "y")
    pq.write_table(pa.table({}), path)
    with pytest.raises(DataError, match="has no columns"):
        sources.read(path, "y")
    pq.write_table(pa.table({f"c{i}": [1.0] for i in range(17_000)}), path)
    with pytest.raises(DataError, match="has 17,000 columns; at most 16,384 are read"):
        sources.read(path, "y")
    with pytest.raises(ValueError, match=r"delimiter is for text, and .* is a Parquet file"):
        sources.read(path, "y", delimiter=";")


def test_a_small_parquet_file_is_read_once(tmp_path: Path, monkeypatch: Any) -> None:
    rows, path = 3000, tmp_path / "data.parquet"
    columns = {name: np.random.default_rng(0).random(rows) for name in ("a", "b", "y")}
    columns["id"] = [f"item {i}" for i in range(rows)]  # left out
    columns["dropped"] = columns["id"]
    pq.write_table(pa.table(columns), path, row_group_size=700)
    read, calls = tables.Parquet._read, []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments[1])
        return read(*arguments)

    monkeypatch.setattr(tables.Parquet, "_read", counted)
    source = sources.read(path, "y", drop=["dropped"])
    assert source.columns.names == ["a", "b"]
    x, y = joined(source)
    np.testing.assert_array_equal(x, np.float32([columns["a"], columns["b"]]).T)
    np.testing.assert_array_equal(joined(source, 1800)[1], y[1800:])
    assert calls == [["a", "b", "y", "id"]]
    labelled = sources.read(path, "y", drop=["dropped"], ids=["dropped"])
    assert next(labelled.labelled(2)).labels.columns["dropped"][0].as_py() == "item 2"
    again = sources.read(path, columns=source.columns)  # without a sample
    assert joined(again)[0].tobytes() == x.tobytes()
    assert calls[2:] == [["dropped", "a", "b", "y"], ["a", "b", "y"]]
    monkeypatch.setattr(tables, "KEPT_NUMBERS", 4 * rows - 1)
    large = sources.read(path, "y", drop=["dropped"])
    assert joined(large)[0].tobytes() == x.tobytes() and len(calls) == 6
    with pytest.raises(DataError, match="the target 'id' must hold numbers, and holds text"):
        sources.read(path, "id", drop=["id"])


def test_a_long_parquet_file_is_not_held(tmp_path: Path) -> None:
    path, groups = tmp_path / "data.parquet", 30
    group = pa.table({"a": np.random.default_rng(0).random(20_000), "y": np.arange(20_000.0)})
    with pq.ParquetWriter(path, group.schema) as file:
        for _ in range(groups):
            file.write_table(group)
    before, held = pa.total_allocated_bytes(), []
    for _, d in sources.read(path, "y"):
        held.append(pa.total_allocated_bytes() - before)
        del d
    assert len(held) > 5 and max(held) < groups * group.nbytes / 3


def test_types_of_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    table = {
        "small": pa.array([1, None], pa.int8()),
        "truth": pa.array([True, False]),
        "exact": pa.array([1, 2], pa.decimal128(5, 2)),
        "word": pa.array(["p", "q"]).dictionary_encode(),
        "y": pa.array([1.0, 2.0], pa.float32()),
    }
    pq.write_table(pa.table(table), path)
    source = sources.read(path, "y", ordinal={"word": ["q", "p"]})
    np.testing.assert_array_equal(joined(source)[0], [[1, 1, 1, 1], [np.nan, 0, 2, 0]])
    pq.write_table(pa.table(table | {"exact": ["x", "y"]}), path)
    with pytest.raises(DataError, match="'exact' holds text, and numbers were learned from it"):
        list(sources.read(path, columns=source.columns))
    pq.write_table(pa.table(table | {"exact": [[1], [2]]}), path)
    with pytest.raises(DataError, match=r"'exact' holds lists, .*neither numbers, texts nor times"):
        list(sources.read(path, columns=source.columns))
    columns = sources.read(path, "y").columns
    assert [column.name for column in columns.inputs] == ["small", "truth", "word"]
    assert "exact holds lists, which are neither numbers, texts nor times, and is left out" in (
        columns.notes
    )


def test_durations_are_seconds(tmp_path: Path) -> None:
    wait = np.array([1500, 250, "NaT"], "timedelta64[ms]")
    table = {"wait": wait, "y": [1.0, 2.0, 3.0]}
    for unit in ("ms", "us"):
        typed = pa.table(table | {"wait": pa.array(wait).cast(pa.duration(unit))})
        pq.write_table(typed, tmp_path / "data.parquet")
        for data in (tmp_path / "data.parquet", typed, typed.to_pylist()):
            np.testing.assert_array_equal(
                joined(sources.read(data, "y"))[0][:, 0], [1.5, 0.25, np.nan]
            )


def test_the_script_that_measures_reads_every_row(tmp_path: Path, monkeypatch: Any) -> None:
    """The short version of experiments/bench/real_streams.py."""
    script = importlib.import_module("experiments.bench.real_streams")
    monkeypatch.setattr(script, "COLUMNS", 3)
    monkeypatch.setattr(script, "MODEL", "nlms")
    script.write(tmp_path, 4096)
    for name in ("data.npy", "data.csv", "data.parquet"):
        result = script.measure(tmp_path / name)
        assert result["rows"] == 4096 and result["rate"] > 0


def test_standard_input_is_handed_on_as_it_comes(monkeypatch: Any) -> None:
    out, into = os.pipe()
    with open(out, "rb") as stdin, open(into, "wb", buffering=0) as pipe:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
        pipe.write(b"a,y\n")
        pipe.write(b"1,2\n3,")
        source = sources.read("-", "y")
        blocks = source(1000)  # a run that goes on: the rows that come now are its next
        assert source.live and next(blocks)[0].tolist() == [[1.0]]
        pipe.write(b"4\n5,6\n")
        assert next(blocks)[1].tolist() == [4.0, 6.0]
        pipe.write(b"7")
        pipe.write(b",8")
        pipe.close()
        assert next(blocks)[0].tolist() == [[7.0]]
        assert next(blocks, None) is None


def test_names_that_are_there_twice_are_changed_and_said(tmp_path: Path) -> None:
    source = sources.read(write(tmp_path, "a,b,a,a.1,a,y\n1,2,3,4,5,6\n"), "y")
    assert source.columns.names == ["a", "b", "a.2", "a.1", "a.4"]
    said = "columns with the name of one before them are called a.2, a.4"
    assert source.columns.notes == (said,)
    np.testing.assert_array_equal(joined(source)[0], [[1, 2, 3, 4, 5]])


def test_rows_may_end_with_a_delimiter_that_the_header_lacks(tmp_path: Path) -> None:
    source = sources.read(write(tmp_path, "a,b,y\n1,2,3,\n4,5,6,\n"), "y")
    np.testing.assert_array_equal(joined(source)[0], [[1, 2], [4, 5]])
    assert "columns without a name and without values are left out: 4" in source.columns.notes
    with pytest.raises(DataError, match="line 2 has 4 fields where the header has 3"):
        sources.read(write(tmp_path, "a,b,y\n1,2,3,4\n4,5,6,7\n"), "y")
