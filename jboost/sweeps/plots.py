"""Pictures of a sweep's table: lines over one setting, a heat map over two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jboost import plots
from jboost.sweeps.results import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 20  # numbers whose ends are this far apart get a logarithmic axis
TICKS = 12  # of a heat map's side
NOTHING = (np.nan, np.nan)


def plot(
    table: Table,
    x: str | None = None,
    y: str | None = None,
    *,
    value: str = "mse",
    by: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A heat map where two settings vary, or ``y`` is given; lines where ``x`` alone is, or ``by``.

    >>> table = Table([{"m": 1}, {"m": 2}], None, (1, 1), {"mse": np.array([2.0, 1.0])})
    >>> plot(table).get_xlabel()
    'm'
    """
    varying = [name for name in table.points[0] if len(_levels(table, name)) > 1]
    if x is None:
        rest = [name for name in varying if name not in (y, by)]
        if (y, by) == (None, None) and len(rest) == 2:
            y = rest[1]
        x = rest[0] if rest else next(iter(table.points[0]))
    if y is not None:
        return heat_map(table, x, y, value=value, ax=ax)
    return lines(table, x, value=value, by=by, ax=ax)


def lines(
    table: Table, x: str, *, value: str = "mse", by: str | None = None, ax: Axes | None = None
) -> Axes:
    """The mean over keys and streams, ± a standard deviation, against one setting.

    Args:
      table: of a sweep.
      x: the setting along the axis.
      value: the column that is drawn.
      by: a setting with a line for each of its values; of all others the best is taken.
      ax: where to draw; by default the only axes of a new figure.
    """
    axes: Any = plots.grid(1, 1)[1][0, 0] if ax is None else ax
    at = _levels(table, x)
    where = _positions(at)
    best = _best(table, value, [x] if by is None else [x, by])
    for k, level in enumerate([None] if by is None else _levels(table, by)):
        last = () if by is None else (_known(level),)
        mean, spread = np.array([best.get((_known(v), *last), NOTHING) for v in at]).T
        style = plots.STYLES[k % len(plots.STYLES)]
        label = None if by is None else f"{by} = {_word(level)}"
        axes.plot(where, mean, marker="o", markersize=3, label=label, **style)
        axes.fill_between(
            where, mean - spread, mean + spread, color=style["color"], alpha=0.15, lw=0
        )
    axes.set(xlabel=x, ylabel=value)
    if not _are_numbers(at):
        axes.set_xticks(where, [_word(level) for level in at])
    elif _is_wide(where):
        axes.set_xscale("log")
    axes.grid(color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if by is not None:
        axes.legend(frameon=False, fontsize="small", handlelength=4)
    return axes


def heat_map(table: Table, x: str, y: str, *, value: str = "mse", ax: Axes | None = None) -> Axes:
    """The mean over keys and streams against two settings, of all others the best; a dot is best.

    Cells without a finite value are white.
    """
    axes: Any = plots.grid(1, 1)[1][0, 0] if ax is None else ax
    across, up = _levels(table, x), _levels(table, y)
    best = _best(table, value, [x, y])
    cells = np.array([[best.get((_known(a), _known(b)), NOTHING)[0] for a in across] for b in up])
    finite = cells[np.isfinite(cells)]
    if finite.size and finite.min() > 0 and finite.max() > WIDE * finite.min():
        drawn, label = np.log10(cells), f"log₁₀ {value}"
    else:
        drawn, label = cells, value
    image = axes.imshow(np.ma.masked_invalid(drawn), origin="lower", aspect="auto", cmap="viridis")
    axes.set_xticks(*_ticks(across), rotation=45, ha="right")
    axes.set_yticks(*_ticks(up))
    axes.set(xlabel=x, ylabel=y)
    if finite.size:
        least = np.argmin(np.where(np.isfinite(cells), cells, np.inf))
        row, column = np.unravel_index(least, cells.shape)
        axes.plot(column, row, "o", color="white", markeredgecolor="black")
    axes.figure.colorbar(image, ax=axes, label=label)
    return axes


def _levels(table: Table, name: str) -> list[Any]:
    """The different values of a setting, in order where they are numbers."""
    if name not in table.points[0]:
        known = ", ".join(table.points[0])
        raise ValueError(f"{name!r} is not a setting of this sweep; they are {known}")
    found = {_known(point[name]): point[name] for point in table.points}
    values = list(found.values())
    return sorted(values) if _are_numbers(values) else values


def _best(table: Table, value: str, names: list[str]) -> dict[Any, tuple[float, float]]:
    """Mean and deviation at the best point of all that share these settings."""
    best: dict[Any, tuple[float, float]] = {}
    for point, mean, spread in zip(
        table.points, table.mean(value), table.deviation(value), strict=True
    ):
        at = tuple(_known(point[name]) for name in names)
        if np.isfinite(mean) and mean < best.get(at, (np.inf, 0))[0]:
            best[at] = float(mean), float(spread)
    return best


def _ticks(levels: list[Any]) -> tuple[list[int], list[str]]:
    """As many as can be read."""
    places = list(range(0, len(levels), -(-len(levels) // TICKS)))
    return places, [_word(levels[place]) for place in places]


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _positions(levels: list[Any]) -> np.ndarray:
    return np.asarray(levels, float) if _are_numbers(levels) else np.arange(float(len(levels)))


def _is_wide(where: np.ndarray) -> bool:
    return bool(where.min() > 0 and where.max() >= WIDE * where.min())


def _known(value: Any) -> str:
    """What tells one value of a setting from another."""
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


def _word(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split())
