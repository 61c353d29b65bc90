"""The table of a sweep: a row for every run, a column for every setting and every result."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.axes import Axes

SHOWN = 12  # rows of a printed table


class Table(Mapping[str, np.ndarray]):
    """The results of a sweep: arrays by the names of columns, with one row for each run.

    The columns are the grid's names; ``key`` and ``stream``, the numbers of the key and the stream,
    where there were several; ``mse``; ``skipped``, how many samples nothing was learned from; and
    the columns of the caller's metric. Rows are ordered by point, then key, then stream.

    points: the settings of every point.
    axes: the values of every name where the grid was a dict, else None.
    done: (rows,), False at runs that an interrupted sweep did not compute; they hold NaN, or zero.
    seconds: how long the sweep took, compiling included.

    >>> table = Table([{"m": 1}, {"m": 2}], {"m": [1, 2]}, (2, 1), {"mse": np.arange(4.0)})
    >>> table["m"].tolist(), table["key"].tolist(), table.best()
    ([1, 1, 2, 2], [0, 1, 0, 1], {'m': 1})
    """

    def __init__(
        self,
        points: list[dict[str, Any]],
        axes: dict[str, list[Any]] | None,
        repeats: tuple[int, int],
        results: Mapping[str, np.ndarray],
        done: np.ndarray | None = None,
        seconds: float = 0.0,
    ):
        keys, streams = self._repeats = repeats
        self.points, self.axes, self.seconds = points, axes, seconds
        rows = len(points) * keys * streams
        self.done = np.ones(rows, bool) if done is None else done
        number, key, stream = np.unravel_index(np.arange(rows), (len(points), keys, streams))
        columns = {name: _column([point[name] for point in points])[number] for name in points[0]}
        if keys > 1:
            columns["key"] = key
        if streams > 1:
            columns["stream"] = stream
        self._columns = {**columns, **results}

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(f"no column {name!r}; there are {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """How many columns there are; ``table.done.size`` is the number of rows."""
        return len(self._columns)

    def by_point(self, name: str = "mse") -> np.ndarray:
        """A column as (points, keys, streams, …)."""
        values = self[name]
        return values.reshape(len(self.points), *self._repeats, *values.shape[1:])

    def mean(self, name: str = "mse") -> np.ndarray:
        """The mean of a column over the runs that are done, at every point; NaN where none is."""
        return self._mean_and_deviation(name)[0]

    def deviation(self, name: str = "mse") -> np.ndarray:
        """The standard deviation of a column over the same runs; 0 where there is one run."""
        return self._mean_and_deviation(name)[1]

    def _mean_and_deviation(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        values = self.by_point(name)
        if values.ndim != 3 or values.dtype.kind not in "biuf":
            raise ValueError(f"column {name!r} must hold a number for each run; it holds others")
        values = values.astype(np.float64)
        done = self.done.reshape(values.shape)
        count = done.sum(axis=(1, 2)).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # a model that diverged
            mean = np.where(done, values, 0).sum(axis=(1, 2)) / np.maximum(count, 1)
            square = np.where(done, (values - mean[:, None, None]) ** 2, 0).sum(axis=(1, 2))
            deviation = np.sqrt(square / np.maximum(count - 1, 1))
        return np.where(count > 0, mean, np.nan), np.where(count > 0, deviation, np.nan)

    def best(self, name: str = "mse", *, largest: bool = False) -> dict[str, Any]:
        """The point with the least (or largest) mean over keys and streams: ``make(**best)``.

        Points whose mean is not finite do not count.
        """
        mean = self.mean(name)
        if not np.isfinite(mean).any():
            raise ValueError(f"no point has a finite {name!r}: nothing is done, or all diverged")
        finite = np.where(np.isfinite(mean), mean, np.nan)
        return dict(self.points[int(np.nanargmax(finite) if largest else np.nanargmin(finite))])

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas data frame; pandas must be installed."""
        return _need("pandas").DataFrame(self._flat())

    def to_polars(self) -> polars.DataFrame:
        """A polars data frame, in which objects are text; polars must be installed."""
        frame = {
            name: [str(value) for value in values] if self[name].dtype == object else values
            for name, values in self._flat().items()
        }
        return _need("polars").DataFrame(frame)

    def _flat(self) -> dict[str, Any]:
        """The columns with one axis: where a run has several numbers, its entry is a list."""
        return {name: v if v.ndim == 1 else v.tolist() for name, v in self.items()}

    def plot(
        self,
        x: str | None = None,
        y: str | None = None,
        *,
        value: str = "mse",
        by: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw lines over one setting, or a heat map over two: see :mod:`jboost.sweeps.plots`."""
        from jboost.sweeps import plots as sweep_plots

        return sweep_plots.plot(self, x, y, value=value, by=by, ax=ax)

    def __repr__(self) -> str:
        rows = self.done.size
        shown = list(range(rows))
        if rows > SHOWN:
            shown = [*shown[: SHOWN // 2], *shown[-SHOWN // 2 :]]
        cells = [[name, *(_cell(values[row]) for row in shown)] for name, values in self.items()]
        if rows > SHOWN:
            for column in cells:
                column.insert(SHOWN // 2 + 1, "…")
        widths = [max(map(len, column)) for column in cells]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in zip(*cells, strict=True)
        ]
        done = int(self.done.sum())
        unfinished = "" if done == rows else f", {done:,} of them done"
        return "\n".join([*lines, f"{rows:,} runs{unfinished}, {self.seconds:.3g} s"])


def _column(values: Sequence[Any]) -> np.ndarray:
    """The values as an array of numbers, words or vectors if all are alike, else of objects."""
    if all(isinstance(value, (bool, int, float, str, np.ndarray)) for value in values):
        kinds = {(np.shape(value), np.asarray(value).dtype.kind in "USb") for value in values}
        if len(kinds) == 1:
            return np.asarray(values)
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _cell(value: Any) -> str:
    """A value as printed, at most 28 letters long."""
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    text = str(value) if np.ndim(value) == 0 else np.array2string(np.asarray(value), precision=3)
    text = " ".join(text.split())
    return text if len(text) <= 28 else f"{text[:27]}…"


def _need(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        advice = f"{package} is missing: pip install {package}, or use the table's columns"
        raise ImportError(advice, name=package) from None
