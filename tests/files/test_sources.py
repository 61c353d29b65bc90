"""Sources: a model sees the same numbers, whatever kind of data the stream comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chex
import numpy as np
import pytest

import jboost as jb
from jboost.files import sources
from jboost.files.columns import Column, Columns, DataError, bucket

pa = pytest.importorskip("pyarrow")
pytest.importorskip("narwhals")

T = 120
RNG = np.random.default_rng(4)
TABLE = RNG.normal(size=(T, 3)).astype(np.float32)
WORDS = RNG.choice(["red", "green", "blue"], size=T).tolist()
A, B, Y = TABLE.T.tolist()
RECORDS = [
    {"a": a, "b": b, "word": word, "y": y} for a, b, word, y in zip(A, B, WORDS, Y, strict=True)
]


def joined(source: Any, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(source(position))
    return np.concatenate([x for x, _ in blocks]), np.concatenate([d for _, d in blocks])


def expected() -> np.ndarray:
    """By hand: two columns of numbers, and four indicators."""
    seen = list(dict.fromkeys(WORDS))
    places = np.array([seen.index(w) if seen.index(w) < 4 else bucket("word", w, 4) for w in WORDS])
    return np.column_stack([TABLE[:, :2], places[:, None] == np.arange(4)]).astype(np.float32)


def data_of(kind: str, folder: Path) -> Any:
    columns = {"a": A, "b": B, "word": WORDS, "y": Y}
    match kind:
        case "pandas":
            return pytest.importorskip("pandas").DataFrame(columns)
        case "polars":
            return pytest.importorskip("polars").DataFrame(columns)
        case "pyarrow":
            return pa.table(columns)
        case "categories":
            frame = pytest.importorskip("pandas").DataFrame(columns)
            return frame.astype({"word": "category"})
        case "tables":
            return [pa.table(columns)[:50], pa.table(columns)[50:]]
        case "dicts":
            return RECORDS
        case "generator":
            return (row for row in RECORDS)
        case "rows":
            return [tuple(row.values()) for row in RECORDS]
    pytest.importorskip("pyarrow.csv").write_csv(pa.table(columns), folder / "data.csv")
    return folder / "data.csv"


@pytest.mark.parametrize(
    "kind",
    ["pandas", "polars", "pyarrow", "categories", "tables", "dicts", "generator", "rows", "csv"],
)
@pytest.mark.parametrize("position", [0, 70])
def test_all_forms_are_the_same_stream(kind: str, position: int, tmp_path: Path) -> None:
    names: Any = {"names": ["a", "b", "word", "y"]} if kind == "rows" else {}
    block = {} if kind == "csv" else {"block": 32}
    source = sources.read(data_of(kind, tmp_path), "y", buckets=4, **block, **names)
    assert source.columns.names == ["a", "b", "word#0", "word#1", "word#2", "word#3"]
    x, d = joined(source, position)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, expected()[position:])
    np.testing.assert_array_equal(d, TABLE[position:, 2])


def test_arrays_and_memory_maps(tmp_path: Path) -> None:
    np.save(tmp_path / "t", TABLE)
    mapped = np.load(tmp_path / "t.npy", mmap_mode="r")
    for source in (
        sources.read(mapped, "y", names=["a", "b", "y"], block=50),
        sources.read(TABLE[:, :2], TABLE[:, 2], block=50),
        sources.read(TABLE, "3", block=50),
        sources.read(TABLE[:, [2, 1, 0]], names=list("yba"), columns=Columns("y", (Column("a"),
                     Column("b")))),
    ):  # fmt: skip
        for position in (0, 60):
            x, d = joined(source, position)
            np.testing.assert_array_equal(x, TABLE[position:, :2])
            np.testing.assert_array_equal(d, TABLE[position:, 2])
    assert sources.read(TABLE, "3", drop=["1"]).columns.names == ["2"]
    with pytest.raises(DataError, match=r"the array has 120 rows.*had seen 121"):
        list(sources.read(TABLE, "3")(121))


def test_a_source_is_what_run_stream_takes() -> None:
    model = jb.bnm_wu(3, target_mse=0.1, forgetting=0.99, ridge=0.1)
    stream = jb.run_stream(model, sources.read(RECORDS, "y", buckets=4, block=32)).finish()
    state, _ = jb.run(model, expected(), TABLE[:, 2])
    chex.assert_trees_all_equal(stream.state, state)


def test_a_run_goes_on_with_columns_in_another_order(tmp_path: Path) -> None:
    model, path = jb.SGD(0.05), tmp_path / "run"
    frame = pa.table({"a": A, "b": B, "y": Y})
    whole = jb.run_stream(model, sources.read(frame, "y")).finish()
    first = sources.read(frame[:70], "y")
    jb.run_stream(model, first, checkpoint=path).finish()
    described = Columns.from_dict(first.columns.as_dict())
    other = sources.read(frame.select(["y", "b", "a"]), columns=described)
    again = jb.run_stream(model, other, checkpoint=path, resume=True).finish()
    np.testing.assert_array_equal(again.state.w, whole.state.w)
    with pytest.raises(DataError, match="the table has no column 'b'"):
        jb.run_stream(model, sources.read(frame.drop(["b"]), columns=described)).finish()


def test_texts_get_places_as_they_appear_wherever_a_stream_is_cut() -> None:
    texts = [*"aabca", *"dbeaf", *"gahab"]
    table = pa.table({"word": texts, "y": np.arange(15.0)})
    seen = list(dict.fromkeys(texts))
    places = [seen.index(t) if seen.index(t) < 4 else bucket("word", t, 4) for t in texts]
    whole = np.array(places)[:, None] == np.arange(4)
    for block in (1, 4, 15):
        source = sources.read(table, "y", buckets=4, block=block)
        np.testing.assert_array_equal(joined(source)[0], whole)
        assert source.columns.inputs[0].values == ("a", "b", "c", "d")
        for position in range(15):  # a new source sees the texts of the rows before it, too
            fresh = sources.read(table, "y", buckets=4, block=block)
            np.testing.assert_array_equal(joined(fresh, position)[0], whole[position:])
    first = sources.read(table[:3], "y", buckets=4)
    list(first)
    described = Columns.from_dict(first.columns.as_dict())
    assert described.seen == 3 and described.inputs[0].values == ("a", "b")
    more = sources.read(table[3:], columns=described, start=3)
    np.testing.assert_array_equal(joined(more, 3)[0], whole[3:])
    # Two columns with the same words do not share their buckets' meaning.
    assert {bucket("a", w, 1000) for w in WORDS} != {bucket("b", w, 1000) for w in WORDS}


def test_buckets_are_evenly_used() -> None:
    counts = np.bincount([bucket("c", str(i), 16) for i in range(16_000)], minlength=16)
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_codes_and_orders() -> None:
    rows = [{"code": 7, "size": "s", "y": 1}, {"code": 9, "size": "l", "y": 2}]
    columns = {"category": ["code"], "ordinal": {"size": ["s", "m", "l"]}, "buckets": 4}
    source = sources.read(rows, "y", **columns)
    x, _ = joined(source)
    np.testing.assert_array_equal(np.flatnonzero(x[0, :4]), [0])
    np.testing.assert_array_equal(x[:, 4], [0, 2])
    rows.append({"code": 1, "size": "xl", "y": 2})
    with pytest.raises(
        DataError, match="row 3 of the stream: 'xl' in the column 'size' is none of s"
    ):
        list(sources.read(rows, "y", **columns))


THREE = [{"a": 1, "y": 2}] * 3
BAD = [
    {"a": 1.0, "word": "p", "y": 1.0},
    {"a": None, "word": "p", "y": 2.0},
    {"a": 3.0, "word": None, "y": 3.0},
    {"a": float("inf"), "word": "p", "y": 4.0},
    {"a": 5.0, "word": "p", "y": None},
    {"a": 1e16, "word": "p", "y": 6.0},
]


def test_missing_values_are_kept_skipped_or_refused() -> None:
    kept_x, kept_d = joined(sources.read(BAD, "y", buckets=2))
    assert np.isnan(kept_x[1, 0]) and (kept_x[2, 1:] == 0).all() and np.isinf(kept_x[3, 0])
    np.testing.assert_array_equal(kept_d, [1, 2, 3, 4, np.nan, 6])
    _, d = joined(sources.read(BAD, "y", buckets=2, missing="skip"))
    np.testing.assert_array_equal(d, [1, np.nan, np.nan, np.nan, np.nan, np.nan])
    stream = jb.run_stream(jb.SGD(0.1), sources.read(BAD, "y", buckets=2)).finish()
    assert (stream.position, stream.skipped) == (6, 4)
    for first, words in [
        (1, "row 1 of the stream: the value of 'a' is missing"),
        (2, "row 1 of the stream: the value of 'word#0' is missing"),
        (3, "row 1 of the stream: the value of 'a' inf is beyond 1e15"),
        (4, "row 1 of the stream: the value of 'y' is missing"),
        (5, r"row 1 of the stream: the value of 'a' 1e\+16 is beyond 1e15"),
    ]:
        with pytest.raises(DataError, match=words):
            columns = sources.read(BAD, "y", buckets=2).columns
            list(sources.read(BAD[first:], columns=columns, missing="raise"))


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (3, TypeError, "data must be a path, a table, an array, or an iterable"),
        ([], DataError, "the stream has no rows"),
        ([1, 2], TypeError, "a row must be a dict or a sequence; got 1"),
        ([*THREE, {"b": 1}], DataError, "row 4 .* column 'b', which the first"),
        (
            [*THREE, {"a": "x"}],
            DataError,
            "row 4 of the stream: 'x' in the column",
        ),
        ([*THREE, (1, 2)], DataError, "row 4 .* of another kind than the first"),
        ([{"a": [1], "y": 2}], DataError, "no column besides .* a holds lists, which are neither"),
        ([{"a": 1, "y": [2]}], DataError, "target 'y' must hold numbers, and holds lists"),
        ([{"a": 1, "y": 2}, {"a": "x", "y": 2}], DataError, "values of several kinds in 'a'"),
        (np.ones((2, 2, 2)), ValueError, r"data must have shape \(T, r\)"),
        (np.array([["a", "b"]]), TypeError, "data must hold real numbers"),
        (np.ones((3, 2)), DataError, "the array has no column 'y'"),
    ],
)
def test_what_cannot_be_read_is_named(data: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        list(sources.read(data, "y", block=None if isinstance(data, np.ndarray) else 2))


def test_options_that_make_no_sense_together() -> None:
    columns = sources.read(RECORDS, "y").columns
    with pytest.raises(ValueError, match="columns say what is read; give no drop"):
        sources.read(RECORDS, columns=columns, drop=["a"])
    with pytest.raises(TypeError, match="delimiter is for text files; got list"):
        sources.read(RECORDS, "y", delimiter=";")
    with pytest.raises(TypeError, match="target must be the name of a column; got 3"):
        sources.read(RECORDS, 3)
    with pytest.raises(ValueError, match=r"target must be .*shape \(120,\)"):
        sources.read(TABLE, np.ones(4))
    once = sources.read((row for row in RECORDS), "y")
    list(once)
    with pytest.raises(ValueError, match="an iterator, which can be gone through only once"):
        list(once)


@pytest.mark.parametrize(
    "described",
    [
        None,
        [],
        {"target": "y", "inputs": []},
        {"target": "y", "inputs": [{"name": "a"}]},
        {"target": 3, "inputs": [{"name": "a", "kind": "number", "buckets": 0, "values": []}]},
        {"target": "y", "inputs": [{"name": "a", "kind": "code", "buckets": 0, "values": []}]},
        {"target": "y", "inputs": [{"name": "a", "kind": "hashed", "buckets": 0, "values": []}]},
        {"target": "y", "inputs": [{"name": "a", "kind": "ordinal", "buckets": 0, "values": [1]}]},
    ],
)
def test_columns_of_a_file_are_checked(described: Any) -> None:
    with pytest.raises(DataError, match="jboost has written"):
        Columns.from_dict(described)


def test_columns_say_what_they_become() -> None:
    shown = [
        str(Column("a")),
        str(Column("b", "hashed", buckets=4)),
        str(Column("b", "category", buckets=4, values=("x",))),
        str(Column("c", "ordinal", values=("lo", "hi"))),
        str(Column("d", "boolean")),
    ]
    assert shown == [
        "a",
        "b (text, hashed to 4 columns)",
        "b (text in 4 columns, 1 of them taken)",
        "c (ordinal: lo < hi)",
        "d (true or false)",
    ]


def test_texts_that_are_listed_and_not_there() -> None:
    """A table may come with a list of texts longer than the texts of its rows."""
    listed = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1]), ["low", "high", "odd"])
    table = pa.table({"word": listed, "y": [1.0, 2.0, 3.0, 4.0]})
    ordinal = sources.read(table, "y", ordinal={"word": ["low", "high"]})
    np.testing.assert_array_equal(joined(ordinal)[0], [[0], [1], [np.nan], [1]])
    numbers = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1]), ["1", "2", "x"])
    hashed = sources.read(pa.table({"word": numbers, "y": [1.0, 2.0, 3.0, 4.0]}), "y", buckets=2)
    assert joined(hashed)[0].sum() == 4
    with pytest.raises(DataError, match="row 4 of the table: 'odd' in the column 'word' is none"):
        there = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 2]), ["low", "high", "odd"])
        table = table.set_column(0, "word", there)
        list(sources.read(table, "y", ordinal={"word": ["low", "high"]}))


def test_numbers_beyond_any_float_are_infinite() -> None:
    rows = [{"a": 10**400, "y": 1.0}, {"a": 2, "y": 10**400}]
    x, d = joined(sources.read(rows, columns=Columns("y", (Column("a"),))))
    assert x.tolist() == [[np.inf], [2.0]] and d.tolist() == [1.0, np.inf]


def test_rows_of_another_length() -> None:
    with pytest.raises(DataError, match="row 2 of the stream has 3 values where the first has 2"):
        list(sources.read([(1.0, 2.0), (1.0, 2.0, 3.0)], "2"))


def test_a_width_that_no_model_could_take() -> None:
    with pytest.raises(DataError, match=r"2,000,000 columns; at most 262,144.*by --buckets"):
        sources.read(RECORDS, "y", buckets=2_000_000 - 2)


def test_python_objects_of_polars_are_called_so() -> None:
    pl = pytest.importorskip("polars")
    held = pl.Series([{1}, {2}, None] * 10, dtype=pl.Object)
    frame = pl.DataFrame({"a": range(30), "set": held, "y": range(30)})
    cure = "cast it to text or numbers"
    source = sources.read(frame, "y")
    objects = "Python objects, which are neither numbers, texts nor times"
    assert source.columns.notes == (f"set holds {objects}, and is left out; {cure}",)
    ((x, _),) = source
    assert x.tolist() == [[i] for i in range(30)]
    with pytest.raises(DataError, match=f"target 'set' must hold numbers, and .*objects.*; {cure}"):
        sources.read(frame, "set")
    with pytest.raises(DataError, match=f"column 'set' holds Python objects.*; {cure}, or drop it"):
        sources.read(frame, "y", category=["set"])
    assert sources.read(frame, "y", drop=["set"]).columns.notes == ()
    learned = sources.read(frame.with_columns(set=pl.col("a")), "y")
    with pytest.raises(DataError, match=f"column 'set' holds Python objects.*; {cure}, or drop it"):
        list(sources.read(frame, columns=learned.columns))
