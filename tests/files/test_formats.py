"""JSON lines, compressed files, quoted line ends, and rows that cannot be read."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jboost.files import lines as text_lines
from jboost.files import sources
from jboost.files.columns import DataError
from jboost.files.predictions import Predictions

pa = pytest.importorskip("pyarrow")
ROWS = [{"a": i / 4, "word": "pqr"[i % 3], "flag": i % 2 == 0, "y": float(i)} for i in range(60)]
CSV = "a,word,flag,y\n" + "".join(
    f"{r['a']},{r['word']},{str(r['flag']).lower()},{r['y']}\n" for r in ROWS
)
JSON = "".join(json.dumps(row) + "\n" for row in ROWS)


def joined(source: Any, position: int = 0) -> np.ndarray:
    return np.concatenate([np.column_stack([x, d]) for x, d in source(position)])


def compressed(text: str, ending: str) -> bytes:
    data = text.encode()
    return {
        "": lambda: data,
        ".gz": lambda: gzip.compress(data),
        ".zst": lambda: pa.compress(data, "zstd", asbytes=True),
    }[ending]()


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("block", [100, 2**20])
def test_all_formats_are_the_same_stream(
    tmp_path: Path, kind: str, ending: str, block: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", block)
    path = tmp_path / f"data.{kind}{ending}"
    path.write_bytes(compressed(CSV if kind == "csv" else JSON, ending))
    source = sources.read(path, "y", buckets=3)
    expected = joined(sources.read(ROWS, "y", buckets=3))
    for position in (0, 1, 37):
        np.testing.assert_array_equal(joined(source, position), expected[position:])


def test_json_lines_need_not_have_every_key(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"a": 1, "y": 2}\n\n{"y": 3, "a": null}\n{"a": "n/a", "y": "-"}\n')
    numbers = joined(sources.read(path, "y"))
    np.testing.assert_array_equal(numbers, [[1, 2], [np.nan, 3], [np.nan, np.nan]])


def test_numbers_that_json_quotes_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"a": "1.5", "y": "2"}\n{"a": null, "y": "3"}\n{"a": "1e3", "y": "n/a"}\n')
    numbers = joined(sources.read(path, "y"))
    np.testing.assert_array_equal(numbers, [[1.5, 2], [np.nan, 3], [1000, np.nan]])


def test_objects_inside_json_have_columns_with_a_dot(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    lines = [
        '{"pump": {"flow": 1, "motor": {"rpm": 10}}, "out": {"kw": 3}}',
        '{"pump": null, "out": {"kw": "n/a"}}',
        '{"pump": {"flow": null, "motor": null}, "out.kw": 5, "out": {"kw": 4}}',
    ]
    path.write_text("\n".join(lines))
    source = sources.read(path, "out.kw")
    assert source.columns.names == ["pump.flow", "pump.motor.rpm"]
    nan = np.nan
    np.testing.assert_array_equal(joined(source), [[1, 10, 3], [nan, nan, nan], [nan, nan, 5]])
    path.write_text('{"a": [1, 2], "b": 5, "c": [], "y": 1}\n' * 3)
    source = sources.read(path, "y")
    assert source.columns.names == ["b"] and joined(source).tolist() == [[5, 1]] * 3
    assert all("holds lists, which are neither" in note for note in source.columns.notes)
    assert sources.read(path, "y", drop=["a", "c"]).columns.notes == ()
    with pytest.raises(DataError, match="the target 'a' must hold numbers, and holds lists"):
        sources.read(path, "a")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1', "line 61 is no JSON: Expecting"),
        ("[1, 2]", r"line 61 is no JSON object, such as \{\"a\": 1\}, but \[1, 2\]"),
        ('{"a": "x", "y": 1}', "line 61: 'x' in the column 'a' is not a number"),
        ('{"a": [1], "y": 1}', r"line 61: \[1\] in the column 'a' is not a number"),
        ('{"a": 1, "y": {"z": 1}}', "line 61: {'z': 1} in the column 'y' is not a number"),
        ("[" * 100_000, "line 61 is no JSON"),
        ("\xff", "line 61 is not in UTF-8"),
    ],
)
def test_bad_lines_of_json(tmp_path: Path, line: str, message: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 200)
    path = tmp_path / "data.jsonl"
    path.write_bytes(JSON.encode() + line.encode("latin-1") + b"\n" + JSON.encode())
    seen = 0
    with pytest.raises(DataError, match=message):
        for _, d in sources.read(path, "y"):
            seen += len(d)
    assert seen == 60  # all rows before it
    said: list[str] = []
    numbers = joined(sources.read(path, "y", bad_rows=said.append))
    assert len(numbers) == 121 and np.isnan(numbers[60]).all() and not np.isnan(numbers[61:]).any()
    assert len(said) == 1 and said[0].endswith("; the row is left out")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,p\n", "line 62 has 2 fields"),
        ("x,p,true,3\n", "line 62: 'x' in the column 'a' is not a number"),
        ("1,p,maybe,3\n", "line 62: 'maybe' in the column 'flag'"),
        ("1,p,true,soon\n", "line 62: 'soon' in the column 'y'"),
        ('1,"p,true,3\n', "line 62"),
        ("1,\xff,true,3\n", "line 62 is not in UTF-8"),
    ],
)
@pytest.mark.parametrize("block", [64, 2**20])
def test_bad_lines_of_csv(
    tmp_path: Path, line: str, message: str, block: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", block)
    monkeypatch.setattr(text_lines, "MOST_LINES", 5)
    path = tmp_path / "data.csv"
    path.write_bytes((CSV + line + CSV.partition("\n")[2]).encode("latin-1"))
    seen = 0
    if block == 64 or "column" not in message:  # in the first block it decides on the column
        with pytest.raises(DataError, match=message):
            for _, d in sources.read(path, "y", buckets=3):
                seen += len(d)
        assert seen == (0 if block > 64 and "\xff" in line else 60)
    said: list[str] = []
    source = sources.read(path, "y", buckets=3, bad_rows=said.append)
    numbers = joined(source)
    expected = joined(sources.read(ROWS, "y", buckets=3))
    assert len(numbers) == 121 and np.isnan(numbers[60]).all()
    np.testing.assert_array_equal(numbers[61:], expected)
    assert [message.partition(":")[0] in said[0], len(said)] == [True, 1]
    np.testing.assert_array_equal(joined(source, 61), expected)
    (bad,) = np.flatnonzero(np.concatenate([b.labels.bad for b in source.labelled(0)]))
    assert bad == 60


@pytest.mark.parametrize("line", [b"\0,p,true,3", b'"1,p,true,3', b"x,p,perhaps,soon", b"x"])
@pytest.mark.parametrize("row", [0, 30, 59])
def test_a_bad_line_in_the_first_block_may_be_left_out(
    tmp_path: Path, line: bytes, row: int
) -> None:
    path = tmp_path / "data.csv"
    head, *rows = CSV.encode().splitlines()
    path.write_bytes(b"\n".join([head, *rows[:row], line, *rows[row + 1 :]]))
    said: list[str] = []
    numbers = joined(sources.read(path, "y", buckets=3, bad_rows=said.append))
    expected = joined(sources.read(ROWS, "y", buckets=3))
    expected[row] = np.nan
    if row:  # the first text would have the first place
        np.testing.assert_array_equal(numbers, expected)
    assert len(numbers) == 60 and np.isnan(numbers[row]).all()
    assert said[0].startswith(f"{path}, line {row + 2}") and "pass --bad-rows" not in said[0]


def test_a_first_line_that_is_no_json_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("# a remark\n" + JSON)
    with pytest.raises(DataError, match="line 1 is no JSON"):
        list(sources.read(path, "y", buckets=3))
    numbers = joined(sources.read(path, "y", buckets=3, bad_rows="skip"))
    np.testing.assert_array_equal(numbers[1:], joined(sources.read(ROWS, "y", buckets=3)))


@pytest.mark.parametrize("block", [16, 40, 2**20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_fields_may_have_line_ends(
    tmp_path: Path, block: int, end: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", block)
    rows = ["1,plain,1", '2,"two' + end + 'lines",2', '3,"a ""quoted"" word",3', '4,5" pipe,4',
            '5,"one' + end + end + 'three",5', "6,plain,6"] * 5  # fmt: skip
    path = tmp_path / "data.csv"
    path.write_bytes(end.join(["a,word,y", *rows, ""]).encode())
    for position in (0, 3, 17):
        numbers = joined(sources.read(path, "y", buckets=8), position)
        assert numbers[:, 0].tolist() == ([1.0, 2, 3, 4, 5, 6] * 5)[position:]
        np.testing.assert_array_equal(numbers[:, -1], numbers[:, 0])
    path.write_bytes(end.join(["a,word,y", *rows, "x,plain,1"]).encode())
    with pytest.raises(DataError, match="line 47: 'x' in the column 'a'"):
        list(sources.read(path, "y", buckets=8))


def test_a_tab_may_be_written_as_in_a_shell(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("a\ty\n1\t2\n")
    for delimiter in (r"\t", "\t", "tab"):
        np.testing.assert_array_equal(
            joined(sources.read(path, "y", delimiter=delimiter)), [[1, 2]]
        )
    path.write_text('{"a": 1, "y": 2}\n')
    with pytest.raises(ValueError, match=r"delimiter is for CSV, and .* holds JSON lines"):
        sources.read(path, "y", delimiter=";")


@pytest.mark.parametrize("text", ["-", "n/a", "NaN", "", "--", "?"])
def test_a_target_may_be_missing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(f"a,y\n1,2\n2,{text}\n3,4\n")
    np.testing.assert_array_equal(joined(sources.read(path, "y"))[:, 1], [2, np.nan, 4])


def test_a_target_column_may_be_absent_where_the_columns_are_known(tmp_path: Path) -> None:
    path, other = tmp_path / "data.csv", tmp_path / "data.jsonl"
    path.write_text("a,b,y\n1,2,3\n")
    columns = sources.read(path, "y").columns
    path.write_text("b,a\n2,1\n")
    other.write_text('{"b": 2, "a": 1}\n')
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"b": [2], "a": [1]}), tmp_path / "data.parquet")
    for data in (path, other, tmp_path / "data.parquet", [{"b": 2, "a": 1}]):
        numbers = joined(sources.read(data, columns=columns))
        np.testing.assert_array_equal(numbers, [[1, 2, np.nan]])


def test_texts_that_name_single_rows_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("id,a,y\n" + "".join(f"order-{i:x}q,{i},{i}\n" for i in range(200)))
    source = sources.read(path, "y")
    assert source.columns.names == ["a"]
    (note,) = source.columns.notes
    assert "id has 200 different texts in 200 rows" in note and "--category id" in note
    assert "--date-format" not in note
    path.write_text("id,a,y\n" + "".join(f"w{i} 20:{i:03} Mo,{i},{i}\n" for i in range(200)))
    (note,) = sources.read(path, "y").columns.notes
    assert note.endswith("; if 'w0 20:000 Mo' is a time, pass --time id and --date-format")
    assert sources.read(path, "y", category=["id"]).columns.width == 65


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_live_feed_goes_on_after_a_bad_row(kind: str, monkeypatch: Any) -> None:
    out, into = os.pipe()
    with open(out) as stdin, open(into, "wb", buffering=0) as pipe:
        monkeypatch.setattr(sys, "stdin", stdin)
        good = b"1,2\n" if kind == "csv" else b'{"a": 1, "y": 2}\n'
        pipe.write((b"a,y\n" if kind == "csv" else b"") + good)
        said: list[str] = []
        source = sources.read("-", "y", bad_rows=said.append)
        blocks = source(0)
        assert next(blocks)[1].tolist() == [2.0]
        pipe.write(good + b"broken\n" + good)
        d = next(blocks)[1]
        assert d[[0, 2]].tolist() == [2.0, 2.0] and np.isnan(d[1]) and len(said) == 1
        pipe.write(good)
        assert next(blocks)[1].tolist() == [2.0]


def test_damaged_zstd(tmp_path: Path) -> None:
    path = tmp_path / "data.csv.zst"
    whole = compressed(CSV * 50, ".zst")
    path.write_bytes(whole[: len(whole) // 2] + bytes(40))
    with pytest.raises(DataError, match="damaged zstd file"):
        list(sources.read(path, "y"))


def test_predictions_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    labels = {"id": pa.chunked_array([["x", 'a"b\nc']])}
    d, made = np.float32([0.5, np.nan]), np.float32([0.1, 3e10])
    with Predictions(path, intervals=True, labels=["id"]) as out:
        out.write(0, d, made, np.float32([-np.inf, 1]), np.float32([np.inf, 2]), labels=labels)
        length = out.length
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first == {
        "row": 1, "id": "x", "target": 0.5, "prediction": 0.1, "lower": None, "upper": None,
    }  # fmt: skip
    assert second["id"] == 'a"b c' and second["target"] is None and second["prediction"] == 3e10
    with Predictions(path, length, 2, intervals=True, labels=["id"]) as out:
        assert out.length == length
    with pytest.raises(ValueError, match="does not hold the 3 predictions"):
        Predictions(path, length, 3, intervals=True, labels=["id"])
    with pytest.raises(ValueError, match="written as plain text"):
        Predictions(tmp_path / "out.csv.gz")
