"""The table of a sweep, with a row for every run, and its pictures."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jboost import plots

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.axes import Axes

SHOWN = 12  # rows of a printed table
WIDE = 20  # an axis is logarithmic if its largest number is this many times its smallest
TICKS = 12  # at most, on each side of a heat map


class Table(Mapping[str, np.ndarray]):
    """The results of a sweep: arrays by the names of columns, with one row for each run.

    The columns are the grid's names; ``key`` and ``stream``, the numbers of the key and the stream,
    where there were several; ``mse``; ``skipped``, how many samples nothing was learned from; and
    the columns of the caller's metric. Rows are ordered by point, then key, then stream.

    points: the settings of every point.
    done: (rows,), False at runs that an interrupted sweep did not compute; they hold NaN, or zero.
    seconds: how long the sweep took, compiling included.

    >>> table = Table([{"m": 1}, {"m": 2}], (2, 1), {"mse": np.arange(4.0)})
    >>> table["m"].tolist(), table["key"].tolist(), table.best()
    ([1, 1, 2, 2], [0, 1, 0, 1], {'m': 1})
    """

    def __init__(
        self, points: list[dict[str, Any]], repeats: tuple[int, int],
        results: Mapping[str, np.ndarray], done: np.ndarray | None = None, seconds: float = 0.0,
    ):  # fmt: skip
        keys, streams = self._repeats = repeats
        self.points, self.seconds = points, seconds
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
        if name not in self._columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def _repr_html_(self) -> str:
        style = "font-family: monospace; white-space: pre; overflow-x: auto"
        return f'<pre style="{style}">{html.escape(str(self))}</pre>'  # a notebook shows it

    def __len__(self) -> int:
        """Return how many columns there are; ``table.done.size`` is the number of rows."""
        return len(self._columns)

    def by_point(self, name: str = "mse") -> np.ndarray:
        """Return a column as (points, keys, streams, …)."""
        values = self[name]
        return values.reshape(len(self.points), *self._repeats, *values.shape[1:])

    def mean(self, name: str = "mse") -> np.ndarray:
        """Return the mean of a column at every point, over the runs that are done; NaN if none."""
        return self._mean_and_deviation(name)[0]

    def deviation(self, name: str = "mse") -> np.ndarray:
        """Return the standard deviation of a column over the same runs; 0 where there is one."""
        return self._mean_and_deviation(name)[1]

    def _mean_and_deviation(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        values = self.by_point(name)
        if values.ndim != 3 or values.dtype.kind not in "biuf":
            raise ValueError(f"column {name!r} must hold a number for each run; it holds others")
        values = values.astype(np.float64)
        done = self.done.reshape(values.shape)
        count = done.sum(axis=(1, 2))
        with np.errstate(invalid="ignore", over="ignore"):  # no run is done, or a model diverged
            mean = np.where(done, values, 0).sum(axis=(1, 2)) / count
            square = np.where(done, (values - mean[:, None, None]) ** 2, 0).sum(axis=(1, 2))
            return mean, np.sqrt(square / np.where(count == 1, 1, np.maximum(count - 1, 0)))

    def best(self, name: str = "mse", *, largest: bool = False) -> dict[str, Any]:
        """Return the point with the least (or largest) mean over keys and streams, for ``make``.

        Points whose mean is not finite do not count.
        """
        mean = self.mean(name)
        if not np.isfinite(mean).any():
            raise ValueError(f"no point has a finite {name!r}: nothing is done, or all diverged")
        finite = np.where(np.isfinite(mean), mean, np.nan)
        return dict(self.points[int(np.nanargmax(finite) if largest else np.nanargmin(finite))])

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas data frame; pandas must be installed."""
        import pandas

        return pandas.DataFrame(self._flat())

    def to_polars(self) -> polars.DataFrame:
        """Return a polars data frame, in which objects are text; polars must be installed."""
        import polars

        frame = {
            name: [str(value) for value in values] if self[name].dtype == object else values
            for name, values in self._flat().items()
        }
        return polars.DataFrame(frame)

    def _flat(self) -> dict[str, Any]:
        """Return columns of one axis: where a run has several numbers, its entry is a list."""
        return {name: v if v.ndim == 1 else v.tolist() for name, v in self.items()}

    def plot(
        self, x: str | None = None, y: str | None = None, *,
        value: str = "mse", by: str | None = None, ax: Axes | None = None,
    ) -> Axes:  # fmt: skip
        """Draw a column's mean over keys and streams, all other settings at their best.

        The picture is a heat map if ``y`` is named, or if no setting is and two vary; else it has
        lines over ``x``, ± a standard deviation.

        Args:
          x: the setting along the horizontal axis.
          y: the setting along the vertical axis of a heat map, which has a dot at the least value.
          value: the column that is drawn.
          by: a setting with a line for each of its values.
          ax: where to draw; by default the only axes of a new figure.
        """
        if x is None:
            varying = [name for name in self.points[0] if len(self._levels(name)) > 1]
            free = [name for name in varying if name not in (y, by)]
            if (y, by) == (None, None) and len(free) == 2:
                y = free[1]
            x = free[0] if free else next(iter(self.points[0]))
        axes = plots.axes_or_new(ax)
        if y is None:
            self._lines(x, value, by, axes)
        else:
            self._heat_map(x, y, value, axes)
        return axes

    def _levels(self, setting: str) -> list[Any]:
        """Return the different values of a setting, sorted if they are numbers."""
        if setting not in self.points[0]:
            settings = ", ".join(self.points[0])
            raise ValueError(f"{setting!r} is not a setting of this sweep; they are {settings}")
        values = {_identity(point[setting]): point[setting] for point in self.points}.values()
        return sorted(values) if _are_numbers(values) else list(values)

    def _best(self, value: str, *settings: str) -> np.ndarray:
        """Return the least mean over all other settings, and its deviation: (2, levels of each)."""
        levels = [map(_identity, self._levels(setting)) for setting in settings]
        positions = [{level: at for at, level in enumerate(column)} for column in levels]
        best = np.full((2, *map(len, positions)), np.nan)
        scores = zip(*self._mean_and_deviation(value), strict=True)
        for point, (mean, deviation) in zip(self.points, scores, strict=True):
            values = (_identity(point[setting]) for setting in settings)
            at = tuple(position[v] for position, v in zip(positions, values, strict=True))
            if np.isfinite(mean) and not best[0][at] <= mean:
                best[:, *at] = mean, deviation
        return best

    def _lines(self, x: str, value: str, by: str | None, axes: Any) -> None:
        levels = self._levels(x)
        numeric = _are_numbers(levels)
        at = np.asarray(levels, float) if numeric else np.arange(float(len(levels)))
        best = self._best(value, x)[..., None] if by is None else self._best(value, x, by)
        for k, level in enumerate([None] if by is None else self._levels(by)):
            mean, spread = best[:, :, k]
            style = plots.STYLES[k % len(plots.STYLES)]
            label = None if by is None else f"{by} = {_label(level)}"
            axes.plot(at, mean, marker="o", markersize=3, label=label, **style)
            band = {"color": style["color"], "alpha": 0.15, "lw": 0}
            axes.fill_between(at, mean - spread, mean + spread, **band)
        axes.set(xlabel=x, ylabel=value)
        if not numeric:
            axes.set_xticks(at, [_label(level) for level in levels])
        elif _is_wide(at):
            axes.set_xscale("log")
        axes.grid(color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if by is not None:
            axes.legend(frameon=False, fontsize="small", handlelength=4)

    def _heat_map(self, x: str, y: str, value: str, axes: Any) -> None:
        cells = np.ma.masked_invalid(self._best(value, y, x)[0])
        wide = _is_wide(cells.compressed())
        drawn, label = (np.ma.log10(cells), f"log₁₀ {value}") if wide else (cells, value)
        image = axes.imshow(drawn, origin="lower", aspect="auto", cmap="viridis")
        axes.set_xticks(*_ticks(self._levels(x)), rotation=45, ha="right")
        axes.set_yticks(*_ticks(self._levels(y)))
        axes.set(xlabel=x, ylabel=y)
        if cells.count():
            row, column = np.unravel_index(cells.argmin(), cells.shape)
            axes.plot(column, row, "o", color="white", markeredgecolor="black")
        axes.figure.colorbar(image, ax=axes, label=label)

    def __repr__(self) -> str:
        rows = self.done.size
        shown: list[int | None] = list(range(rows))
        if rows > SHOWN:
            shown[SHOWN // 2 : -SHOWN // 2] = [None]
        cells = [
            [name, *("…" if row is None else _cell(values[row]) for row in shown)]
            for name, values in self.items()
        ]
        widths = [max(map(len, column)) for column in cells]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in zip(*cells, strict=True)
        ]
        done = int(self.done.sum())
        unfinished = "" if done == rows else f", {done:,} of them done"
        return "\n".join([*lines, f"{rows:,} runs{unfinished}, {self.seconds:.3g} s"])


def _column(values: Sequence[Any]) -> np.ndarray:
    """Return an array of numbers, words or vectors if all values are alike, else of objects."""
    if all(isinstance(value, (bool, int, float, str, np.ndarray)) for value in values):
        kinds = {(np.shape(value), np.asarray(value).dtype.kind in "USb") for value in values}
        if len(kinds) == 1:
            return np.asarray(values)
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _label(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    text = str(value) if np.ndim(value) == 0 else np.array2string(np.asarray(value), precision=3)
    return " ".join(text.split())


def _cell(value: Any) -> str:
    """Return a value as printed, at most 28 letters long."""
    text = _label(value)
    return text if len(text) <= 28 else f"{text[:27]}…"


def _ticks(levels: list[Any]) -> tuple[list[int], list[str]]:
    """Return positions and labels of at most TICKS levels."""
    positions = list(range(0, len(levels), -(-len(levels) // TICKS)))
    return positions, [_label(levels[position]) for position in positions]


def _are_numbers(values: Iterable[object]) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _is_wide(values: np.ndarray) -> bool:
    return bool(values.size and values.min() > 0 and values.max() >= WIDE * values.min())


def _identity(value: object) -> str:
    """Return a text that differs between different values of a setting."""
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)
