"""Dates and times are recognised, read in 64 bits, and become cycles and elapsed time."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jboost as jb
from jboost.files import cycles, sources, time_formats
from jboost.files.columns import Column, Columns, DataError
from jboost.files.times import Times

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
HOURS = [datetime.datetime(2012, 12, 28, 7) + datetime.timedelta(hours=i) for i in range(200)]


def by_hand(time: datetime.datetime, first: datetime.datetime) -> list[float]:
    """The columns of a time, from the calendar's own words and not from counts since 1970."""
    day = (time.hour + time.minute / 60 + time.second / 3600) / 24
    week = (time.weekday() + day) / 7
    since = (time - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=365.2425)
    made = []
    for phase, count in ((day, 4), (week, 3), (since, 2)):
        for k in range(1, count + 1):
            made += [np.cos(2 * np.pi * k * phase), np.sin(2 * np.pi * k * phase)]
    return [*made, (time - first) / datetime.timedelta(days=1)]


EXPECTED = np.array([by_hand(time, HOURS[0]) for time in HOURS])


def csv(form: str) -> str:
    lines = [f"{time.strftime(form)};{i % 5};{i}" for i, time in enumerate(HOURS)]
    return "\n".join(["when;a;y", *lines, ""])


def read(folder: Path, text: str, **options: Any) -> Any:
    (folder / "data.csv").write_text(text)
    return sources.read(folder / "data.csv", "y", delimiter=";", **options)


def inputs(source: Any) -> np.ndarray:
    return np.concatenate([x for x, _ in source])


@pytest.mark.parametrize(
    "form",
    ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S+00:00",
     "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d-%m-%Y %H:%M", "%Y/%m/%d %H:%M",
     "%d/%m/%y %H:%M", "%d %b %Y %H:%M", "%b %d, %Y %I:%M %p", "%d.%m.%Y, %H:%M",
     "%Y%m%d %H:%M", "%Y%m%d %H:%M:%S"],
)  # fmt: skip
def test_the_common_orders_are_recognised(tmp_path: Path, form: str) -> None:
    source = read(tmp_path, csv(form))
    assert source.columns.time.name == "when" and source.columns.step == 3_600_000_000
    np.testing.assert_allclose(inputs(source)[:, :-1], EXPECTED, atol=2e-6)
    (block,) = source.labelled(0)
    assert block.labels.columns["when"][7].as_py() == HOURS[7].strftime(form)  # as it was written
    np.testing.assert_array_equal(block.labels.instants, np.array(HOURS, "datetime64[us]"))
    described = Columns.from_dict(source.columns.as_dict())
    assert described == source.columns
    again = sources.read(tmp_path / "data.csv", columns=described, delimiter=";")
    np.testing.assert_array_equal(inputs(again), inputs(source))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_counts_since_1970_are_split_in_64_bits(tmp_path: Path, unit: str) -> None:
    counts = np.array(HOURS, f"datetime64[{unit}]").astype(np.int64)
    text = "\n".join(["epoch;a;y", *(f"{c};{i % 5};{i}" for i, c in enumerate(counts))])
    source = read(tmp_path, text)
    assert source.columns.inputs[0].format == unit
    np.testing.assert_allclose(inputs(source)[:, :-1], EXPECTED, atol=2e-6)
    assert read(tmp_path, text.replace("epoch", "meter_ts")).columns.time is not None
    numbers = read(tmp_path, text.replace("epoch", "counts"))
    assert numbers.columns.time is None  # numbers of another name are numbers
    named = read(tmp_path, text.replace("epoch", "count"), time="count")
    np.testing.assert_allclose(inputs(named)[:, :-1], EXPECTED, atol=2e-6)


@pytest.mark.parametrize("kind", ["timestamp", "zoned", "pandas", "polars", "rows", "text"])
def test_types_of_arrow_pandas_and_polars(tmp_path: Path, kind: str) -> None:
    numbers = {"a": [i % 5 for i in range(200)], "y": [float(i) for i in range(200)]}
    data: Any
    match kind:
        case "pandas":
            data = pytest.importorskip("pandas").DataFrame({"when": HOURS} | numbers)
        case "polars":
            data = pytest.importorskip("polars").DataFrame({"when": HOURS} | numbers)
        case "rows":
            data = [{"when": t, "a": i % 5, "y": float(i)} for i, t in enumerate(HOURS)]
        case "text":
            data = pa.table({"when": [t.isoformat() for t in HOURS]} | numbers)
        case _:
            zone = "UTC" if kind == "zoned" else None
            data = tmp_path / "data.parquet"
            times_of = pa.array(HOURS, pa.timestamp("ms", zone))
            pq.write_table(pa.table({"when": times_of} | numbers), data)
    np.testing.assert_allclose(inputs(sources.read(data, "y"))[:, :-1], EXPECTED, atol=2e-6)


def test_a_zone_moves_the_clock_and_not_the_time(tmp_path: Path) -> None:
    source = read(tmp_path, csv("%Y-%m-%dT%H:%M:%SZ"), time_zone="Asia/Tokyo")
    later = datetime.timedelta(hours=9)
    x = inputs(source)
    expected = np.array([by_hand(time + later, HOURS[0] + later) for time in HOURS])
    np.testing.assert_allclose(x[:, :-1], expected, atol=2e-6)
    (block,) = source.labelled(0)
    np.testing.assert_array_equal(block.labels.instants, np.array(HOURS, "datetime64[us]"))
    with pytest.raises(DataError, match="'Mars/Dome' is no time zone"):
        list(read(tmp_path, csv("%Y-%m-%dT%H:%M:%SZ"), time_zone="Mars/Dome"))


def test_a_date_on_many_rows_labels_and_gives_no_frequency(tmp_path: Path) -> None:
    source = read(tmp_path, csv("%Y-%m-%d"))
    (column, _), columns = source.columns.inputs, source.columns
    assert column.cycles == ("week", "year", "elapsed") and columns.step == 0
    assert columns.time.name == "when"


def test_a_time_of_day_is_a_cycle_of_the_day(tmp_path: Path) -> None:
    text = csv("%d/%m/%Y;%H:%M:%S").replace("when;", "date;clock;")
    source = read(tmp_path, text, drop=["date"])
    assert source.columns.inputs[0].cycles == ("day",) and source.columns.time is None
    np.testing.assert_allclose(inputs(source)[:, :8], EXPECTED[:, :8], atol=2e-6)


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("%d/%m/%Y;%H:%M:%S", "date;clock"),
        ("%Y-%m-%d;%H:%M", "date;clock"),
        ("%m/%d/%Y;%H.%M.%S", "Date;Time"),
        ("%Y%m%d;%I:%M %p", "date;clock"),
        ("%Y;%m;%d;%H", "Year;Month;Day;Hour"),
        ("%Y;%m;%d;%H;%M", "year;month;day;hour;minute"),
    ],
)
def test_columns_that_make_one_time(tmp_path: Path, form: str, names: str) -> None:
    parts = names.split(";")
    source = read(tmp_path, csv(form).replace("when", names, 1))
    columns = source.columns
    assert columns.labels == parts and columns.step == 3_600_000_000
    assert str(columns.inputs[0]).startswith(f"{' '.join(parts)} (time of {len(parts)} columns, %")
    np.testing.assert_allclose(inputs(source)[:, :-1], EXPECTED, atol=2e-6)
    (block,) = source.labelled(0)
    np.testing.assert_array_equal(block.labels.instants, np.array(HOURS, "datetime64[us]"))
    written = [block.labels.columns[name][9].as_py() for name in parts]
    assert ";".join(written) == HOURS[9].strftime(form)
    described = Columns.from_dict(columns.as_dict())
    assert described == columns
    again = sources.read(tmp_path / "data.csv", columns=described)
    np.testing.assert_array_equal(inputs(again), inputs(source))


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "pandas"])
def test_columns_of_types_that_make_one_time(tmp_path: Path, kind: str) -> None:
    data: Any = {"date": [t.date() for t in HOURS], "clock": [t.time() for t in HOURS]}
    data |= {"a": [i % 5 for i in range(200)], "y": [float(i) for i in range(200)]}
    if kind == "parquet":
        pq.write_table(pa.table(data), tmp_path / "data.parquet")
        data = tmp_path / "data.parquet"
    elif kind == "jsonl":
        rows = zip(*data.values(), strict=True)
        lines = [f'{{"date": "{d}", "clock": "{c}", "a": {a}, "y": {y}}}\n' for d, c, a, y in rows]
        data = tmp_path / "data.jsonl"
        data.write_text("".join(lines))
    else:
        days = np.array(HOURS, "datetime64[D]").astype("datetime64[us]")
        data = pytest.importorskip("pandas").DataFrame(data | {"date": days})
    source = sources.read(data, "y")
    np.testing.assert_allclose(inputs(source)[:, :-1], EXPECTED, atol=2e-6)


def test_columns_that_make_no_one_time(tmp_path: Path) -> None:
    days = "".join(f"2024;{i // 28 + 1};{i % 7 + 1};{i}\n" for i in range(100))
    source = read(tmp_path, "year;month;day;y\n" + days)  # days of the week: they go back
    assert source.columns.names == ["year", "month", "day"] and source.columns.time is None
    text = csv("%d/%m/%Y;%H:%M:%S").replace("when;", "date;clock;")
    columns = read(tmp_path, text, time="date", drop=["date"]).columns
    assert columns.labels == ["date"] and columns.inputs[0].cycles == ("day",)
    laps = [f"{time:%d/%m/%Y};00:0{i * 7 % 9}:30;{i % 5};{i}" for i, time in enumerate(HOURS)]
    columns = read(tmp_path, "\n".join(["date;lap;a;y", *laps])).columns  # a duration is no clock
    assert columns.labels == ["date"] and columns.inputs[1].cycles == ("day",)
    newest_first = [text.splitlines()[0], *reversed(text.splitlines()[1:])]
    assert read(tmp_path, "\n".join(newest_first)).columns.labels == ["date", "clock"]
    odd = text + "01/02/2013;25:00:00;1;2\n"
    with pytest.raises(DataError, match="line 202: '01/02/2013 25:00:00' in the column 'date clo"):
        list(read(tmp_path, odd))


def test_an_unclear_order_asks_for_the_format(tmp_path: Path) -> None:
    text = "when;y\n03/05/2012;1\n01/05/2012;2\n02/05/2012;3\n"
    with pytest.raises(DataError, match="unclear order; pass --date-format '%d/%m/%Y' or"):
        read(tmp_path, text)
    with pytest.raises(DataError, match="no column holds dates like '%Y'; correct --date-format"):
        read(tmp_path, text.replace("/", "x"), date_format="%Y")
    source = read(tmp_path, text, date_format="%d/%m/%Y")
    (block,) = source.labelled(0)
    assert str(block.labels.instants[0])[:10] == "2012-05-03"
    ordered = read(tmp_path, "when;y\n01/02/2012;1\n02/02/2012;2\n01/03/2012;3\n")
    assert ordered.columns.time.format == "%d/%m/%Y"  # the other way, time would go back


def test_what_is_no_time_is_named_with_its_line(tmp_path: Path) -> None:
    text = csv("%d/%m/%Y %H:%M") + "soon;1;2\n;1;3\n"
    with pytest.raises(DataError, match=r"line 202: 'soon' .* no time like %d/%m/%Y %H:%M"):
        list(read(tmp_path, text))
    x = inputs(read(tmp_path, text, bad_rows="skip"))
    assert np.isnan(x[-2]).all() and np.isnan(x[-1, 0]) and x[-1, -1] == 1
    with pytest.raises(DataError, match="no times are found in the column 'a'"):
        read(tmp_path, text, time="a")


def test_iso_times_that_label_no_row_are_parsed_with_the_text(tmp_path: Path) -> None:
    zoned = "%Y-%m-%dT%H:%M:%S+02:00"
    rows = [
        f"{t.isoformat(' ')};{t.isoformat()};{t.strftime(zoned)};{i}" for i, t in enumerate(HOURS)
    ]
    source = read(tmp_path, "\n".join(["a;b;c;y", *rows, ""]))
    (raw,) = source._reader.blocks(source.columns, 0)
    assert [str(t) for t in raw.table.schema.types] == [
        "string", "timestamp[us]", "timestamp[us, tz=UTC]", "double",
    ]  # fmt: skip
    expected = inputs(source)
    assert (expected[:, :19] == expected[:, 19:38]).all()
    odd = [*rows]
    odd[150] = odd[150].replace("T", " at ", 1)
    odd[170] = odd[170].replace(";170", ";€ 170")  # a number that Arrow cannot parse
    text = "\n".join(["a;b;c;y", *odd, ""])
    with pytest.raises(
        DataError, match=r"line 152: '2013-01-03 at 13:00:00' in the column 'b' is no"
    ):
        inputs(read(tmp_path, text))
    said: list[str] = []
    skipped = read(tmp_path, text, bad_rows=said.append)
    ((x, y),) = skipped
    assert len(said) == 1 and "line 152: " in said[0] and np.isnan(x[150]).all() and y[170] == 170
    there = np.arange(200) != 150
    assert (x[there] == expected[there]).all()


def test_a_user_may_drop_the_time_and_keep_it_as_a_label(tmp_path: Path) -> None:
    text = csv("%Y-%m-%d %H:%M").replace("when;", "id;when;", 1).replace("\n2", "\nx;2")
    source = read(tmp_path, text, time="when", drop=["when"], ids=["id"])
    assert source.columns.names == ["a"] and source.columns.labels == ["when", "id"]
    (block,) = source.labelled(0)
    assert block.labels.columns["id"][3].as_py() == "x"
    np.testing.assert_array_equal(block.labels.instants, np.array(HOURS, "datetime64[us]"))


def test_steps_and_texts_of_times() -> None:
    hours = np.array(HOURS, "datetime64[us]")
    assert time_formats.step_between(hours) == 3_600_000_000
    assert time_formats.step_between(np.repeat(hours, 2)) == 0
    assert time_formats.step_between(hours[:1]) == 0
    wild = hours[np.random.default_rng(0).integers(0, 200, 200)]
    assert time_formats.step_between(wild) == 0


def test_calendar_makes_the_columns_of_the_command() -> None:
    hours = np.arange(200, dtype=np.float32)[:, None]
    calendar = jb.Calendar(unit="hours", origin="2012-12-28T07:00")
    made = np.stack([calendar.apply((), x) for x in hours[::17]])
    np.testing.assert_allclose(made, EXPECTED[::17], atol=5e-6)
    years = jb.Calendar(unit="minutes", origin="2012-12-28T07:00", cycles=("day",))
    late = years.apply((), np.float32([2**23 + 61]))  # sixteen years later, to the minute
    minute = (7 * 60 + (2**23 + 61)) % 1440
    assert float(late[0]) == pytest.approx(np.cos(2 * np.pi * minute / 1440), abs=2e-6)
    assert np.isnan(np.asarray(calendar.apply((), np.float32([np.nan])))).all()
    for wrong, message in [
        ({"unit": "fortnights"}, "unit must be one of"),
        ({"origin": "soon"}, "origin must be a date in ISO 8601"),
        ({"cycles": ()}, "cycles must be a tuple of some of day, week"),
        ({"column": -1}, "column must be"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            jb.Calendar(**wrong)
    with pytest.raises(ValueError, match="column must be below num_features=1"):
        jb.Calendar(column=3).apply((), np.float32([0.0]))


def test_cycles_do_not_depend_on_the_pieces_they_are_made_in(monkeypatch: Any) -> None:
    rows = [{"t": f"2024-03-{1 + i % 28:02} {i % 24:02}:{i % 60:02}", "y": i} for i in range(100)]
    ((whole, _),) = sources.read(rows, "y")
    monkeypatch.setattr(cycles, "CACHED_ROWS", 7)
    ((pieces, _),) = sources.read(rows, "y")
    assert whole.shape == (100, 19) and whole.tobytes() == pieces.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kept", [("day", "week", "year", "elapsed"), ("week",), ("year", "day")])
def test_cycles_that_are_looked_up_have_the_bits_of_those_that_are_computed(
    kept: tuple[str, ...], dtype: type[np.floating[Any]]
) -> None:
    rng, rows = np.random.default_rng(0), 3 * cycles.CACHED_ROWS
    minutes = rng.integers(-(10**7), 3 * 10**7, rows)  # from 1950 to 2027
    wall = np.datetime64(12_345_678, "us") + minutes * np.timedelta64(1, "m")
    wall[0] = np.datetime64("NaT")  # in the first piece, and a fraction of a minute in the second
    wall[-cycles.CACHED_ROWS - 1] += np.timedelta64(1, "us")
    found = Times(wall - np.timedelta64(7, "h"), wall, np.zeros(0, int))
    column = Column("t", "time", format="iso", cycles=kept, origin=5)
    cycles._table.cache_clear()
    whole = np.empty((rows, column.width + 1), dtype)[:, 1:]
    cycles.fill(whole, column, found)
    assert rows >= cycles.WEEK and cycles._table.cache_info().misses == (kept[0] != "year")
    for start in range(0, rows, 1000):  # of so few no table is made
        piece, some = (
            np.empty((1000, column.width), dtype)[: rows - start],
            slice(start, start + 1000),
        )
        cycles.fill(piece, column, Times(found.instants[some], wall[some], found.odd))
        assert piece.tobytes() == np.ascontiguousarray(whole[some]).tobytes()
    assert cycles._table.cache_info().misses == (kept[0] != "year")
