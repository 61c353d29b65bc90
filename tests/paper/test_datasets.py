"""Data sets: what is read, what is converted, and what is refused."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jboost.paper.datasets as datasets

NAMES = ("mv", "puma8nh", "kin8nm", "compactiv", "protein", "onp", "california", "ypmsd")
REAL = os.environ.get("JBOOST_DATA")

MV = """% a comment before the header
@relation mv
@attribute x1 numeric
@attribute 'x2' numeric
@ATTRIBUTE x3 {green, red, brown}
@attribute x4 numeric
@attribute x5 numeric
@attribute x6 numeric
@attribute x7 {no, yes}
@attribute x8 {normal, large}
@attribute x9 numeric
@attribute x10 numeric
@attribute y numeric

@data
% a comment among the rows
1.5, -13, brown, -6, 0.5, -17, no, normal, 153, 1026, -13.5

-2, -10, red, -5, 0.25, -19, yes, large, 256, 1091, 2.25
0.5,-11,'green',4,1e-1,3,no,large,100,1000,7
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no folder of data, for every test."""
    monkeypatch.delenv("JBOOST_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches" / "jboost"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def store(folder: Path, name: str, **arrays: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{name}.npz", **arrays)
    return folder / f"{name}.npz"


def prepare_part(name: str, raw: Path) -> Path:
    with pytest.warns(UserWarning, match="partial"):
        return datasets.prepare(name, raw)


def news(rows: range, *, url: bool) -> str:
    columns = [*(["url"] if url else []), "timedelta", *(f"f{i}" for i in range(58)), "shares"]
    lines = [", ".join(columns)]
    for k in rows:
        link = ["http://example.org/a"] if url else []
        lines.append(", ".join([*link, "731", *(f"{k}.{i:02}" for i in range(58)), str(100 * k)]))
    return "\n".join(lines) + "\n"


def test_table_is_complete() -> None:
    assert datasets.names() == NAMES == tuple(datasets.SETS)
    for name, spec in datasets.SETS.items():
        assert spec.name == name
        assert spec.source.startswith("https://")
        assert spec.kind in ("arff", "csv", "txt")


def test_arff_with_nominals(cache: Path, tmp_path: Path) -> None:
    path = prepare_part("mv", write(tmp_path / "mv.arff", MV))
    assert path == cache / "mv.npz"
    xs, ds = datasets.load("mv")
    assert xs.dtype == ds.dtype == np.float32
    expected = np.array(
        [
            [1.5, -13, 0, -6, 0.5, -17, 0, 0, 153, 1026],
            [-2, -10, 1, -5, 0.25, -19, 1, 1, 256, 1091],
            [0.5, -11, 2, 4, 0.1, 3, 0, 1, 100, 1000],
        ],
        np.float32,
    )
    np.testing.assert_array_equal(xs, expected)
    np.testing.assert_array_equal(ds, np.array([-13.5, 2.25, 7], np.float32))
    with np.load(path, allow_pickle=False) as file:
        assert sorted(file.files) == ["columns", "target", "x", "y"]
        assert file["columns"].tolist() == [f"x{i}" for i in range(1, 11)]
        assert file["target"].shape == ()
        assert str(file["target"]) == "y"
    assert [p.name for p in cache.iterdir()] == ["mv.npz"]  # no temporary file stays


def test_csv_with_the_target_first(tmp_path: Path) -> None:
    text = '\ufeff"RMSD","F1",F2,F3,F4,F5,F6,F7,F8,F9\r\n17.25,1,2,3,4,5,6,7,8,9\r\n'
    prepare_part("protein", write(tmp_path / "CASP.csv", text))
    xs, ds = datasets.load("protein")
    assert xs.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 9]]
    assert ds.tolist() == [17.25]


def test_parts_are_joined_in_number_order(tmp_path: Path) -> None:
    for part in range(1, 12):  # as text, _10 and _11 come before _2
        text = news(range(2 * part, 2 * part + 2), url=False)
        write(tmp_path / f"parts/OnlineNewsPopularity_{part}.csv", text)
    write(tmp_path / "parts/readme.txt", "not a part")
    prepare_part("onp", tmp_path / "parts")
    xs, ds = datasets.load("onp")
    assert xs.shape == (22, 58)
    np.testing.assert_array_equal(ds, 100 * np.arange(2, 24))
    np.testing.assert_allclose(xs[0, :3], [2.0, 2.01, 2.02], rtol=1e-6)  # timedelta is gone

    prepare_part("onp", write(tmp_path / "News.csv", news(range(2, 24), url=True)))
    one, same = datasets.load("onp")
    np.testing.assert_array_equal(one, xs)
    np.testing.assert_array_equal(same, ds)


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    write(folder / "OnlineNewsPopularity_1.csv", news(range(2), url=False))
    write(folder / "OnlineNewsPopularity_3.csv", news(range(2), url=False))
    with pytest.raises(ValueError, match="without gaps"):
        datasets.prepare("onp", folder)
    with pytest.raises(ValueError, match="raw_file must be a file; got"):
        datasets.prepare("mv", folder)
    other = news(range(2), url=False).replace("f57", "g57")
    write(folder / "OnlineNewsPopularity_2.csv", other)
    with pytest.raises(ValueError, match=r"_2\.csv must .* the same in every part"):
        datasets.prepare("onp", folder)


def test_text_without_header(tmp_path: Path) -> None:
    lines = [",".join([str(2000 + k), *(f"{k}.{i:02}" for i in range(90))]) for k in range(3)]
    path = prepare_part("ypmsd", write(tmp_path / "songs.txt", "\n".join(lines)))
    xs, ds = datasets.load("ypmsd")
    assert xs.shape == (3, 90)
    assert ds.tolist() == [2000, 2001, 2002]
    np.testing.assert_allclose(xs[2, [0, 89]], [2.00, 2.89], rtol=1e-6)
    with np.load(path) as file:
        columns = file["columns"].tolist()
    assert [columns[i] for i in (0, 11, 12, 89)] == [
        "timbre_avg_1", "timbre_avg_12", "timbre_cov_1", "timbre_cov_78",
    ]  # fmt: skip


def test_only_the_expected_rows_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    spec = datasets.SETS["mv"]._replace(rows=2)
    monkeypatch.setattr(datasets, "SETS", {"mv": spec})
    datasets.prepare("mv", write(tmp_path / "mv.arff", MV))
    assert len(recwarn) == 0
    assert datasets.load("mv")[1].tolist() == [-13.5, 2.25]


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("brown, -6", "blue, -6", r"line 17 .*'blue'"),
        ("-10, red", "?, red", r"line 19 .*'\?'"),
        ("256, 1091, 2.25", "256, 1091", r"line 19 .*10 fields where the header has 11"),
        ("1e-1", "nan", "finite in float32; 1 rows are not, the first is row 2"),
        ("1e-1", "1e39", "finite in float32"),
        ("@attribute x9 numeric\n", "", "10 features and 'y'"),
        ("@attribute y numeric", "@attribute z numeric", "10 features and 'y'"),
        ("@data", "", "x must be real numbers"),
        (MV, "", "must be arff"),
        (MV, "PK\x03\x04\x00\xff" * 40_000, "must be arff"),
    ],
)
def test_bad_raw_files_are_refused(
    cache: Path, tmp_path: Path, old: str, new: str, match: str
) -> None:
    assert old in MV
    raw = write(tmp_path / "mv.arff", MV.replace(old, new))
    with pytest.raises(ValueError, match=match) as caught:
        datasets.prepare("mv", raw)
    assert str(raw) in str(caught.value)
    assert not cache.exists()


def test_binary_and_packed_files_are_refused(tmp_path: Path) -> None:
    binary = write(tmp_path / "sm_train.mat", "MATLAB" + "\x01\x02" * 100_000)
    with pytest.raises(ValueError, match=r"line 1 .* 1 fields"):
        datasets.prepare("ypmsd", binary)
    with zipfile.ZipFile(tmp_path / "mv.zip", "w") as file:
        file.writestr("mv.arff", MV)
    with pytest.raises(ValueError, match="unpacked first"):
        datasets.prepare("mv", tmp_path / "mv.zip")


def test_a_failed_conversion_keeps_the_earlier_file(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write(tmp_path / "mv.arff", MV)
    before = prepare_part("mv", raw).read_bytes()

    def fail(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        datasets.prepare("mv", raw)
    assert [p.name for p in cache.iterdir()] == ["mv.npz"]
    assert (cache / "mv.npz").read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_missing_set_names_source_and_call(name: str, cache: Path) -> None:
    spec = datasets.SETS[name]
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load(name)
    text = str(caught.value)
    for part in (spec.source, str(cache), f'jboost.datasets.prepare("{name}", "{spec.raw}")'):
        assert part in text
    with pytest.raises(FileNotFoundError, match=re.escape(spec.source)):
        datasets.prepare(name, "no/such/file")


def test_unknown_names_get_the_closest() -> None:
    with pytest.raises(
        ValueError, match=r"mv, puma8nh, .*ypmsd, bank8fm; got 'Kin8mn' .*'kin8nm'\?"
    ):
        datasets.load("Kin8mn")
    for call in (datasets.stand_in, lambda name: datasets.prepare(name, "x")):
        with pytest.raises(ValueError, match=r"one of .*got '\.\./mv'"):
            call("../mv")


def test_data_folder_comes_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(cache, "kin8nm", x=np.zeros((2, 8)), y=np.array([1, 2]))
    assert datasets.available() == ("kin8nm",)
    monkeypatch.setenv("JBOOST_DATA", str(tmp_path / "data"))
    assert datasets.load("kin8nm")[1].tolist() == [1, 2]
    store(tmp_path / "data", "kin8nm", x=np.zeros((1, 8)), y=np.array([3]))
    store(tmp_path / "data", "mv", x=np.zeros((1, 10)), y=np.array([3]))
    assert datasets.available() == ("mv", "kin8nm")
    xs, ds = datasets.load("kin8nm")
    assert ds.tolist() == [3]
    assert xs.dtype == ds.dtype == np.float32


def test_relative_cache_home_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(datasets.sys, "platform", "linux")
    path = prepare_part("mv", write(tmp_path / "mv.arff", MV))
    assert path == tmp_path / ".cache" / "jboost" / "mv.npz"
    monkeypatch.setattr(datasets.sys, "platform", "darwin")
    path = prepare_part("mv", tmp_path / "mv.arff")
    assert path == tmp_path / "Library" / "Caches" / "jboost" / "mv.npz"


class Trap:
    """Unpickling this would fail the test run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.exit, ("an object was unpickled",)


GOOD = {"x": np.ones((4, 8), np.float32), "y": np.ones(4, np.float32)}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"x": np.array([[Trap()] * 8] * 4)}, "allow_pickle"),
        ({"y": np.array([Trap()] * 4)}, "allow_pickle"),
        ({"x": np.ones((4, 7))}, r"\(T, 8\) .* got float64 \(4, 7\)"),
        ({"x": np.ones((5, 8))}, r"got float64 \(5, 8\) and float32 \(4,\)"),
        ({"x": np.ones(8)}, "must be real numbers of shape"),
        ({"y": np.ones((4, 1))}, "must be real numbers of shape"),
        ({"y": np.float32(1)}, "must be real numbers of shape"),
        ({"x": np.ones((0, 8)), "y": np.ones(0)}, "T >= 1"),
        ({"x": np.full((4, 8), "1.0")}, "must be real numbers"),
        ({"y": np.ones(4, complex)}, "must be real numbers"),
        ({"y": np.array([0, 1, np.inf, np.nan])}, "2 rows are not, the first is row 2"),
        ({"x": np.full((4, 8), 1e300)}, "finite in float32; 4 rows"),
        ({"y": None}, "must be an .npz of plain arrays"),
    ],
)
def test_wrong_contents_are_refused(cache: Path, change: dict[str, Any], match: str) -> None:
    contents = {k: v for k, v in {**GOOD, **change}.items() if v is not None}
    path = store(cache, "kin8nm", **contents)
    with pytest.raises(ValueError, match=match) as caught:
        datasets.load("kin8nm")
    assert str(path) in str(caught.value)


def test_damaged_files_are_refused(cache: Path) -> None:
    rng = np.random.default_rng(0)
    path = store(cache, "kin8nm", x=rng.normal(size=(500, 8)), y=rng.normal(size=500))
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    np.save(cache / "plain.npy", GOOD["x"])
    plain = (cache / "plain.npy").read_bytes()
    for content in (whole[:middle], whole[:-30], b"", flipped, plain, pickle.dumps(Trap())):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"kin8nm\.npz must be .*prepare\("):
            datasets.load("kin8nm")


def test_paper_scaled() -> None:
    xs = np.array([[1, 5, -3], [2, 5, 0], [4, 5, 9]], np.float32)
    ds = np.array([10, 30, 20], np.float32)
    x, d = datasets.paper_scaled(xs, ds)
    np.testing.assert_allclose(x, [[-1, 0, -1], [-1 / 3, 0, -0.5], [1, 0, 1]], rtol=1e-6)
    np.testing.assert_allclose(d, [-1, 1, 0], rtol=1e-6)
    assert x.dtype == d.dtype == np.float32
    biased, _ = datasets.paper_scaled(xs, ds, bias=True)
    np.testing.assert_array_equal(biased, np.column_stack([x, [1, 1, 1]]))
    assert datasets.paper_scaled(xs, ds.astype(np.float64))[0].dtype == np.float64
    assert datasets.paper_scaled(xs[:1], ds[:1])[0].tolist() == [[0, 0, 0]]
    for bad_x, bad_d in ((xs, ds[:2]), (ds, ds), (xs[:0], ds[:0]), (xs * np.nan, ds)):
        with pytest.raises(ValueError, match="xs"):
            datasets.paper_scaled(bad_x, bad_d)


@pytest.mark.parametrize("name", NAMES)
def test_stand_in(name: str) -> None:
    spec = datasets.SETS[name]
    xs, ds = datasets.stand_in(name, 2000)
    again, _ = datasets.stand_in(name, 2000)
    np.testing.assert_array_equal(xs, again)
    assert xs.shape == (2000, spec.features)
    assert xs.dtype == ds.dtype == np.float32
    head, tail = datasets.stand_in(name, 10)
    np.testing.assert_allclose(head, xs[:10], rtol=1e-5)
    np.testing.assert_allclose(tail, ds[:10], rtol=1e-5)
    # A line explains some of the target but not all; the noise alone is about 4 % of its variance.
    a, d = datasets.paper_scaled(xs, ds, bias=True)
    rest = d - a @ np.linalg.lstsq(a.astype(np.float64), d.astype(np.float64), rcond=None)[0]
    assert 0.08 < rest.var() / d.var() < 0.9


def test_stand_in_length() -> None:
    assert datasets.stand_in("kin8nm")[0].shape == (8192, 8)
    for rows in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="rows must be a whole number >= 1"):
            datasets.stand_in("mv", rows)  # type: ignore[arg-type]


@pytest.mark.skipif(not REAL, reason="JBOOST_DATA is not set")
@pytest.mark.parametrize("name", NAMES)
def test_real_sets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JBOOST_DATA", str(REAL))
    if name not in datasets.available():
        pytest.skip(f"{name} is not in JBOOST_DATA")
    spec = datasets.SETS[name]
    xs, ds = datasets.load(name)
    assert xs.shape == (spec.rows, spec.features)
    assert ds.shape == (spec.rows,)
    with np.load(Path(str(REAL)) / f"{name}.npz", allow_pickle=False) as file:
        assert str(file["target"]) == spec.target
        assert len(file["columns"]) == spec.features
        if name == "ypmsd":
            assert file["columns"].tolist() == datasets._SONG
    x, d = datasets.paper_scaled(xs, ds)
    for values in (x, d[:, None]):
        np.testing.assert_array_equal(values.min(axis=0), -1)
        np.testing.assert_array_equal(values.max(axis=0), 1)


def test_bank8fm_is_no_set_of_table_1_and_its_rows_end_with_a_comma(
    cache: Path, tmp_path: Path
) -> None:
    names = ["a1cx", "a1cy", "b2x", "b2y", "a2pop", "a3pop", "temp", "mxql", "rej"]
    head = "@relation bank8FM\n" + "".join(f"@attribute {name}  numeric\n" for name in names)
    row = "-0.5,-0.25,-0.125,0.5,7,15,0.5,8,0.75,\n"
    prepare_part("bank8fm", write(tmp_path / "bank8FM.arff", f"{head}\n@data\n{row}"))
    xs, ds = datasets.load("bank8fm")
    np.testing.assert_array_equal(xs, [[-0.5, -0.25, -0.125, 0.5, 7, 15, 0.5, 8]])
    np.testing.assert_array_equal(ds, [0.75])
    assert "bank8fm" not in datasets.names() and datasets.available() == ("bank8fm",)
