"""The data sets of the paper: read from disk, or converted from public files.

``SETS`` are the eight of its Table 1. ``FURTHER`` has Bank8FM, of a commented-out figure.

A set is a file ``<name>.npz`` with ``x`` (T, r), ``y`` (T,), ``columns`` and ``target``, unscaled
and in the order of its source, in the folder ``$JBOOST_DATA`` or in the user's cache folder.
Nothing here opens a network connection, and nothing unpickles.
"""

import difflib
import itertools
import os
import re
import sys
import warnings
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from jboost.checkpoints.atomic import replacing
from jboost.core import checks
from jboost.core.numerics import as_array

Stream = tuple[NDArray[np.floating], NDArray[np.floating]]  # xs (T, r) and ds (T,)


class DataSet(NamedTuple):
    """What is known of a set before its file is opened."""

    name: str
    title: str  # in Table 1
    rows: int
    features: int
    target: str  # the column to predict
    source: str  # the page that offers `raw`
    raw: str  # the public file, or the folder of its numbered parts
    kind: str = "arff"  # or csv; or txt, without a header and with the target first
    raw_rows: int | None = None  # the rows that `prepare` takes, if they are not `rows`
    dropped: tuple[str, ...] = ()  # columns that do not predict the target
    nominal: Mapping[str, Mapping[str, float]] = {}  # column -> value -> code
    parts: str = ""  # the pattern of the file names of parts


_ARFF = "https://github.com/renatopp/arff-datasets, folder regression"
_MV = {"x3": {"brown": 0.0, "red": 1.0, "green": 2.0}, "x7": {"no": 0.0, "yes": 1.0},
       "x8": {"normal": 0.0, "large": 1.0}}  # fmt: skip
_CASP = "https://github.com/Elsa-Yang98/ConformalSmallest, folder data-raw"
_NEWS = "https://github.com/luxiaolei/NewsPopularity"
_SONGS = "https://archive.ics.uci.edu/dataset/203/yearpredictionmsd"
_TABLE = (
    DataSet("mv", "MV", 40768, 10, "y", _ARFF, "mv.arff", nominal=_MV),
    DataSet("puma8nh", "Puma8NH", 8192, 8, "thetadd3", _ARFF, "puma8NH.arff"),
    DataSet("kin8nm", "Kinematics", 8192, 8, "y", _ARFF, "kin8nm.arff"),
    DataSet("compactiv", "Compactiv", 8192, 21, "usr", _ARFF, "cpu.act.arff"),
    DataSet("protein", "Protein Tertiary", 45730, 9, "RMSD", _CASP, "CASP.csv", "csv"),
    DataSet("onp", "ONP", 39000, 58, "shares", _NEWS, "rawdata/input", "csv",
            dropped=("url", "timedelta"), parts=r"OnlineNewsPopularity_(\d+)\.csv"),
    DataSet("california", "California Housing", 20640, 8, "medianHouseValue", _ARFF,
            "cal.housing.arff"),
    DataSet("ypmsd", "YPMSD", 7000, 90, "year", _SONGS, "YearPredictionMSD.txt", "txt", 463_715),
)  # fmt: skip
_BANK = DataSet("bank8fm", "Bank8FM", 8192, 8, "rej", _ARFF, "bank8FM.arff")
SETS: Mapping[str, DataSet] = {spec.name: spec for spec in _TABLE}
FURTHER: Mapping[str, DataSet] = {_BANK.name: _BANK}
_ATTRIBUTE = re.compile(r"""\s*@attribute\s+('[^']*'|"[^"]*"|\S+)""", re.IGNORECASE)
_DATA = re.compile(r"\s*@data\b", re.IGNORECASE)
_SONG = [f"timbre_{kind}_{i + 1}" for kind, n in (("avg", 12), ("cov", 78)) for i in range(n)]


def names() -> tuple[str, ...]:
    """Return the names of the sets of Table 1, in its order; ``SETS[name]`` describes each."""
    return tuple(SETS)


def available() -> tuple[str, ...]:
    """Return the names of the sets whose file is in one of the two folders; none is opened."""
    return tuple(name for name in (*SETS, *FURTHER) if _find(name))


def load(name: str) -> Stream:
    """Return the inputs (T, r) and targets (T,) of a set: float32, unscaled, in order.

    ``ValueError``: no set has this name, or its file is damaged, of another shape, or not finite.
    ``FileNotFoundError``: the set is in neither folder; the message says where to get it.
    """
    spec, path = _spec(name), _find(name)
    if path is None:
        where = f"$JBOOST_DATA ({os.environ.get('JBOOST_DATA') or 'not set'}) or {_folders()[-1]}"
        raise FileNotFoundError(f"no {name}.npz ({spec.title}) in {where}. {_advice(spec)}")
    try:
        if not zipfile.is_zipfile(path):  # np.load would also take a bare .npy
            raise ValueError("not a zip archive")
        with np.load(path, allow_pickle=False) as file:
            x, y = file["x"], file["y"]
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, MemoryError,
            zipfile.BadZipFile, zlib.error) as error:  # fmt: skip
        message = f"{path} must be an .npz of plain arrays x and y; {error}. {_advice(spec)}"
        raise ValueError(message) from error
    return _checked({"x": x, "y": y}, spec.features, np.float32, f"{path}: ")


def prepare(name: str, raw_file: str | os.PathLike[str]) -> Path:
    """Convert a downloaded public file to ``<name>.npz`` in the cache folder; return its path.

    Args:
      name: one of :func:`names`, or of ``FURTHER``.
      raw_file: the unpacked file ``raw`` that ``SETS[name]`` names, from its ``source``.

    Of ``onp`` it is a folder of ``OnlineNewsPopularity_<n>.csv``, joined in the order of their
    numbers, or the file of all 39644 articles; the first 39000 are taken. Of ``ypmsd`` the first
    463715 songs are taken, the training part of UCI's file. These are NOT the 7000 songs of
    ``SETS``, which were drawn from them at random.

    An earlier file is replaced whole or not at all. Too few rows give a warning; a malformed or
    foreign file gives a ``ValueError`` that names the line.
    """
    spec, raw = _spec(name), Path(raw_file).expanduser()
    if not raw.exists():
        raise FileNotFoundError(f"raw_file must exist; there is no {raw}. {_advice(spec)}")
    x, y, columns = _convert(spec, raw)
    folder = _folders()[-1]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    with replacing(path) as out:
        np.savez_compressed(out, x=x, y=y, columns=columns, target=np.array(spec.target))
    if len(y) < (expected := spec.raw_rows or spec.rows):
        warnings.warn(f"{raw} has {len(y)} rows of {expected}: a partial copy?", stacklevel=2)
    return path


def paper_scaled(xs: ArrayLike, ds: ArrayLike, *, bias: bool = False) -> Stream:
    """Scale every feature and the target to [-1, 1] by the extremes of the WHOLE stream.

    This looks ahead, as no online learner can. Use it only to reproduce the paper's Table 1;
    ``jboost.Scale`` scales a live stream.

    Args:
      xs: (T, r), T >= 1, finite; a constant column becomes 0.
      ds: (T,), finite. The results are float64 if either argument is, else float32.
      bias: whether to append a column of ones to the features.

    >>> xs, ds = paper_scaled([[0, 7], [5, 7], [10, 7]], [1, 2, 5], bias=True)
    >>> xs.tolist(), ds.tolist()
    ([[-1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 1.0]], [-1.0, -0.5, 1.0])
    """
    x, d = np.asarray(as_array("xs", xs, "(T, r)")), np.asarray(as_array("ds", ds, "(T,)"))
    bias = checks.flag("bias", bias)
    dtype = np.float64 if np.float64 in (x.dtype, d.dtype) else np.float32
    wide = np.column_stack(_checked({"xs": x, "ds": d}, None, np.float64))
    low, high = wide.min(axis=0), wide.max(axis=0)
    half = np.where(high > low, (high - low) / 2, np.inf)  # a constant column is 0 / inf
    unit = np.clip((wide - low) / half - (high > low), -1, 1).astype(dtype)
    x, d = unit[:, :-1], unit[:, -1].copy()
    return np.column_stack([x, np.ones(len(d), dtype)]) if bias else x.copy(), d


def stand_in(name: str, rows: int | None = None) -> Stream:
    """Generate a stream with as many features as the named set. This is NOT the data set.

    The features are Gaussian, of unlike scales and offsets; the target is linear, plus a saturating
    and a product term, plus noise. The name fixes the seed; a shorter stream is the beginning of a
    longer one, up to rounding. Errors on it say nothing about the set: label them so.

    Args:
      name: one of :func:`names`.
      rows: T >= 1; None: as many as the set has.

    >>> xs, ds = stand_in("kin8nm", 100)
    >>> xs.shape, ds.shape, str(xs.dtype)
    ((100, 8), (100,), 'float32')
    """
    spec = _spec(name)
    r, T = spec.features, checks.whole("rows", spec.rows if rows is None else rows, at_least=1)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    scale, offset = 10 ** rng.uniform(-1, 2, r), rng.uniform(-3, 3, r)
    directions = rng.standard_normal((r, 4)) / np.sqrt(r)
    draws = rng.standard_normal((T, r + 1))
    a, b, c, d = (draws[:, :-1] @ directions).T
    ds = 50 + 20 * (0.5 * a + np.tanh(2 * b) + 0.5 * c * d + 0.2 * draws[:, -1])
    return (scale * (draws[:, :-1] + offset)).astype(np.float32), ds.astype(np.float32)


def _spec(name: str) -> DataSet:
    described = {**SETS, **FURTHER}
    if isinstance(name, str) and name in described:
        return described[name]
    got = checks.shown(name)
    near = difflib.get_close_matches(got.strip("'").lower(), described, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(f"name must be one of {', '.join(described)}; got {got}{hint}")


def _advice(spec: DataSet) -> str:
    call = f'jboost.datasets.prepare("{spec.name}", "{spec.raw}")'
    return f"Nothing is downloaded: get {spec.raw} from {spec.source}; convert it once with {call}"


def _folders() -> list[Path]:
    """Return the folders that may hold sets; the last is the cache folder."""
    data, local = os.environ.get("JBOOST_DATA"), os.environ.get("LOCALAPPDATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # the XDG specification says to ignore a relative path
        cache = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
        cache = Path(local) if sys.platform == "win32" and local else cache
    return [*([Path(data).expanduser()] if data else []), cache / "jboost"]


def _find(name: str) -> Path | None:
    paths = (folder / f"{name}.npz" for folder in _folders())
    return next((path for path in paths if path.is_file()), None)


def _checked(
    named: Mapping[str, NDArray], features: int | None, dtype: DTypeLike, where: str = ""
) -> Stream:
    """Return x and y, named for messages, in a dtype, if they are real, finite, (T, r) and (T,)."""
    (x_name, x), (y_name, y) = named.items()
    fits = x.ndim == 2 and y.shape == x.shape[:1] and x.size > 0
    if not fits or features not in (None, x.shape[1]) or {x.dtype.kind, y.dtype.kind} - {*"fiu"}:
        shape = f"(T, {features or 'r'}) and {y_name} (T,), T >= 1"
        got = f"got {x.dtype} {x.shape} and {y.dtype} {y.shape}"
        raise ValueError(f"{where}{x_name} must be real numbers of shape {shape}; {got}")
    with np.errstate(over="ignore"):
        x, y = x.astype(dtype), y.astype(dtype)
    bad = np.flatnonzero(~(np.isfinite(x).all(axis=1) & np.isfinite(y)))
    if bad.size:
        rows = f"{bad.size} rows are not, the first is row {bad[0]}"
        raise ValueError(f"{where}{x_name} and {y_name} must be finite in {x.dtype}; {rows}")
    return x, y


def _rows(path: Path, spec: DataSet) -> Iterator[tuple[int, list[str]]]:
    """Yield the column names, then the fields of each row, with line numbers."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        lines, columns = enumerate(file, 1), [spec.target, *_SONG]
        if spec.kind == "arff":
            head = itertools.takewhile(lambda item: not _DATA.match(item[1]), lines)
            columns = [m[1].strip("'\"") for _, line in head if (m := _ATTRIBUTE.match(line))]
        if spec.kind != "csv":
            yield 0, columns
        for number, line in lines:  # no file has a comma inside a field
            whole = line.rstrip().removesuffix(",")  # rows of Bank8FM end with a comma
            fields = [field.strip(" \t\n'\"") for field in whole.split(",")]
            if any(fields) and not line.startswith("%"):
                yield number, fields


def _parts(raw: Path, spec: DataSet) -> list[Path]:
    """Return the files of a set, in the order of their numbers."""
    if not raw.is_dir():
        return [raw]
    matches = [(re.fullmatch(spec.parts, path.name), path) for path in raw.iterdir()]
    parts = {int(match[1]): path for match, path in matches if match}
    if not parts or {*parts} != {*range(1, len(parts) + 1)}:
        folder = f" or a folder of {spec.parts}, numbered from 1 without gaps" if spec.parts else ""
        raise ValueError(f"raw_file must be a file{folder}; got {raw}")
    return [parts[number] for number in sorted(parts)]


def _convert(spec: DataSet, raw: Path) -> tuple[NDArray, NDArray, NDArray[np.str_]]:
    """Return x, y and the names of the features from a public file."""
    values, columns, width = array("f"), list[str](), spec.features + 1
    for path in _parts(raw, spec):
        if zipfile.is_zipfile(path):
            raise ValueError(f"{path} must be unpacked first; it is a zip archive")
        rows = _rows(path, spec)
        _, header = next(rows, (0, list[str]()))
        features = [c for c in header if c not in (spec.target, *spec.dropped)]
        same = features == (columns or features)
        if spec.target not in header or len(features) != spec.features or not same:
            contents = f"{spec.features} features and {spec.target!r}, the same in every part"
            got = f"got columns {header[:100]}"
            raise ValueError(f"{path} must be {spec.kind} with {contents}; {got}")
        columns = features
        codes = {c: code.__getitem__ for c, code in spec.nominal.items()}
        readers = [(header.index(c), codes.get(c, float)) for c in [*features, spec.target]]
        for line, fields in rows:
            if len(values) == width * (spec.raw_rows or spec.rows):
                break
            try:
                if len(fields) != len(header):
                    raise ValueError(f"{len(fields)} fields where the header has {len(header)}")
                values.extend([read(fields[i]) for i, read in readers])
            except (ValueError, KeyError) as error:
                requirement = "numbers and known nominal values"
                raise ValueError(f"{path}, line {line} must hold {requirement}; {error}") from None
    table = np.frombuffer(values, np.float32).reshape(-1, width)
    pair = {"x": table[:, :-1], "y": table[:, -1]}
    return *_checked(pair, spec.features, np.float32, f"{raw}: "), np.array(columns)
