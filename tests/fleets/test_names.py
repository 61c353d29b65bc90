"""Names of every kind become numbers, always the same ones, and come back as they were."""

import datetime
import uuid

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jboost as jb
from jboost.fleets import directory
from jboost.fleets.columns import names_of
from jboost.fleets.directory import Directory
from jboost.fleets.names import hashes

MOMENT = datetime.datetime(2026, 3, 1, 12, 30, 5, 250)
KINDS = [
    "",
    "a",
    "1",
    "Ünïcode",
    "x" * 64,
    "x" * 65,
    "\ud800",
    b"",
    b"1",
    b"a\0",
    1,
    -1,
    2**63,
    -(2**70),
    datetime.date(2026, 3, 1),
    datetime.date(1, 1, 1),
    MOMENT,
    MOMENT.replace(tzinfo=datetime.UTC),
    uuid.UUID(int=7),
    (),
    ("a", 1),
    ("a", (1, b"1")),
]


def numbers(table, values):
    names = names_of("names", values)
    return table.add(names, hashes(names)).tolist()


def test_names_of_all_kinds_are_different_and_come_back():
    names = names_of("names", KINDS)
    assert names.tolist() == KINDS and [*map(type, names.tolist())] == [*map(type, KINDS)]
    table = Directory()
    assert numbers(table, KINDS) == [*range(len(KINDS))]
    assert numbers(table, KINDS[::-1]) == [*range(len(KINDS))][::-1]
    assert table.names(np.arange(len(KINDS))).tolist() == KINDS
    assert table.fork(3).count == 3 and table.fork(3).names(np.arange(3)).tolist() == KINDS[:3]


@pytest.mark.parametrize(
    "values",
    [
        ["b", "a", "b", "Ünï", ""],
        [3, -1, 3, 0, 2**40],
        [b"x", b"y" * 70, b"x", b"", b"z"],
        [datetime.date(2026, 1, d) for d in (1, 2, 1, 3, 4)],
        [MOMENT, MOMENT.replace(second=7), MOMENT, MOMENT.replace(year=1969), MOMENT],
    ],
    ids=["text", "whole", "bytes", "dates", "moments"],
)
def test_a_column_of_any_library_has_the_names_of_a_list(values):
    expected = hashes(names_of("names", values)).tolist()
    columns = [
        tuple(values),
        np.array(values, object),
        pyarrow.array(values),
        pyarrow.chunked_array([values[:2], values[2:]]),
        pyarrow.array(values).dictionary_encode(),
        pyarrow.array(values)[0:],
        pandas.Series(values, dtype=object),
        polars.Series(values),
    ]
    if not isinstance(values[0], (bytes, datetime.date)):
        columns += [
            np.array(values),
            pandas.Series(values),
            pandas.Series(values, dtype="category"),
        ]
    if isinstance(values[0], datetime.datetime):
        columns += [np.array(values, "datetime64[us]"), pandas.Series(values)]
    elif isinstance(values[0], datetime.date):
        columns += [np.array(values, "datetime64[D]")]
    for column in columns:
        names = names_of("names", column)
        assert hashes(names).tolist() == expected and names.tolist() == values, type(column)
    sliced = pyarrow.array([*values, *values])[2:7]
    assert names_of("names", sliced).tolist() == [*values, *values][2:7]


FAR = datetime.timezone(datetime.timedelta(hours=-5))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([MOMENT.replace(year=9999, tzinfo=FAR)], [MOMENT.replace(year=9999, hour=17)]),
        ([datetime.datetime(9999, 12, 31, 23, tzinfo=FAR)], [np.datetime64("10000-01-01T04", "s")]),
        (np.array(["20000-01-01T00:00:01.5"], "M8[ms]"), [np.datetime64("20000-01-01T00:00:01.5")]),
        (np.array(["-0044-03-15T12"], "M8[s]"), [np.datetime64("-0044-03-15T12", "s")]),
        (
            pandas.Series(pandas.to_datetime(["2026-01-01T00:00:00.000000001Z"])),
            [pandas.Timestamp("2026-01-01T00:00:00.000000001Z")],
        ),
    ],
    ids=["zone", "zone beyond Python", "beyond Python", "before Python", "nanoseconds of a zone"],
)
def test_moments_that_python_cannot_hold_are_names_too(values, names):
    found = names_of("names", values)
    utc = [n.replace(tzinfo=datetime.UTC) if isinstance(n, datetime.datetime) else n for n in names]
    assert found.tolist() == utc
    fleet = jb.Fleet(jb.SGD(0.5), 1)
    state, _ = fleet.run(fleet.init(), values, [[1.0]], [1.0])
    assert fleet.predict(state, fleet.column(state), [[1.0]]).tolist() == [0.5]
    if not (isinstance(values, list) and isinstance(names[0], np.datetime64)):
        assert fleet.predict(state, fleet.names(state), [[1.0]]).tolist() == [0.5]


def test_hashes_never_change():
    """Draws and the machine that serves a name depend on them."""
    assert [hex(h) for h in hashes(names_of("names", ["a", 1, b"x" * 100, (1, "a")]))] == HASHES


HASHES = ["0x69da71da7281f878", "0x633074625459c0e7", "0x7f08f9dffd164e29", "0xa707273fb2265eea"]


@given(st.lists(st.text(max_size=20) | st.integers() | st.binary(max_size=80)))
def test_a_directory_is_a_dict(values):
    table, expected = Directory(), {}
    for part in (values[:7], values):
        if part:
            found = numbers(table, part)
            assert found == [expected.setdefault(v, len(expected)) for v in part]
    assert table.count == len(expected)


def test_names_of_one_hash_are_told_apart(monkeypatch):
    names = names_of("names", [f"n{i % 30}" for i in range(100)])
    equal = np.full(100, 7, np.uint64)
    table = Directory()
    assert table.add(names, equal).tolist() == [i % 30 for i in range(100)]
    assert table.find(names, equal).tolist() == [i % 30 for i in range(100)]
    other = names_of("names", ["n31"])
    assert table.find(other, equal[:1]).tolist() == [-1]


def test_many_names_in_one_block():
    table, many = Directory(), np.arange(100_000)[::-1]
    assert numbers(table, many) == [*range(100_000)]
    assert table.nbytes < 120 * table.count
    assert numbers(table, many[:5]) == [*range(5)]
    assert directory.SPARSE * table.count <= len(table._table)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", None], "names must not be missing; row 1 has none, 1 in all"),
        ([float("nan"), "a"], "names must not be missing; row 0"),
        (pyarrow.array(["a", None, None]), "row 1 has none, 2 in all"),
        (pandas.Series([1, None]), "names must be .* got .*float|must not be missing"),
        (pandas.Series(["a", None]), "names must not be missing; row 1"),
        (polars.Series(["a", None]), "names must not be missing; row 1"),
        (np.array(["2026-01-01", "NaT"], "datetime64[D]"), "names must not be missing; row 1"),
        ([("a", None), "b", ("c", ("d", None))], "names must not be missing; row 0 .* 2 in all"),
        (["a", 1.5], r"names must be text, .* row 1 has 1.5, of type float"),
        ([True], "row 0 has True, of type bool"),
        (np.array([1.0]), "names must be text, .* got dtype float64"),
        (np.ones((2, 2), int), r"names must have shape \(n,\); got \(2, 2\)"),
        ("abc", "names must be a list or a column of names; got 'abc'"),
        (7, "names must be a list or a column"),
        ([["a"]], "row 0 has .* of type list"),
    ],
)
def test_bad_names_are_named(names, message):
    with pytest.raises((TypeError, ValueError), match=message):
        names_of("names", names)


def test_no_names_are_names_of_any_kind():
    assert all(len(names_of("names", none)) == 0 for none in ([], (), np.array([])))


def test_a_hostile_block_loses_nothing():
    """Mixed names are names; a missing one refuses the block, and what was learned stays."""
    fleet = jb.Fleet(jb.SGD(0.5), 1)
    state, _ = fleet.run(fleet.init(), ["a", 1, b"a"], np.ones((3, 1)), np.ones(3))
    with pytest.raises(ValueError, match="names must not be missing; row 1"):
        fleet.run(state, ["a", None], np.ones((2, 1)), np.ones(2))
    huge = "k" * 2**20
    after, _ = fleet.run(state, [huge, "a", huge], np.ones((3, 1)), np.ones(3))
    np.testing.assert_allclose(fleet.states(after, [huge, "a", 1]).w.ravel(), [0.75, 0.75, 0.5])
    assert fleet.names(after) == ["a", 1, b"a", huge]


@pytest.mark.parametrize("library", ["arrow", "pandas", "polars"])
def test_tables_with_a_column_of_names(library):
    columns = {
        "shop": ["n", "s", "n", "n"],
        "item": [1, 1, 2, 1],
        "x": [1.0, 2.0, None, 1.0],
        "y": [1.0, 1.0, 1.0, 2.0],
    }
    table = {
        "arrow": pyarrow.table,
        "pandas": pandas.DataFrame,
        "polars": polars.DataFrame,
    }[library](columns)
    fleet = jb.Fleet(jb.SGD(0.1), 1)
    state, trace = fleet.run_table(
        fleet.init(), table, names=["shop", "item"], target="y", inputs=["x"]
    )
    assert fleet.names(state) == [("n", 1), ("s", 1), ("n", 2)]
    assert trace.skipped.tolist() == [False, False, True, False]
    with pytest.raises(ValueError, match=r"names must be columns of the table, .* got 'sensor'"):
        fleet.run_table(state, table, names="sensor", target="y")
    with pytest.raises(TypeError, match="inputs must be columns of numbers; 'shop' is"):
        fleet.run_table(state, table, names="item", target="y")
    with pytest.raises(TypeError, match="names must be the names of columns, as text; got 3"):
        fleet.run_table(state, table, names=3, target="y")
    with pytest.raises(ValueError, match="names must be at least one column; got none"):
        fleet.run_table(state, table, names=[], target="y")
    with pytest.raises(ValueError, match="inputs must be other columns than the target; got 'y'"):
        fleet.run_table(state, table, names="item", target="y", inputs=["x", "y"])
    after, _ = fleet.run_table(state, table, names="item", target="y", inputs="x")  # one, as text
    assert fleet.names(after)[-2:] == [1, 2]


def test_columns_of_pandas_may_have_numbers_for_names_but_not_the_same_one_twice():
    frame = pandas.DataFrame([["n", 1.0, 2.0], ["s", 3.0, 4.0]])
    fleet = jb.Fleet(jb.SGD(0.1), 1)
    state, _ = fleet.run_table(fleet.init(), frame, names="0", target="2")
    assert fleet.names(state) == ["n", "s"]
    frame.columns = ["key", "x", "x"]
    with pytest.raises(ValueError, match="target must name one column each; 2 are 'x'"):
        fleet.run_table(state, frame, names="key", target="x", inputs=["key"])
