"""Pictures of a sweep's table: lines over one setting, a heat map over two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jboost import plots
from jboost.sweeps.results import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 20  # an axis is logarithmic if its largest number is this many times its smallest
TICKS = 12  # at most, on each side of a heat map
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
    """Draw a heat map if ``y`` is named, or if nothing is and two settings vary; lines otherwise.

    >>> table = Table([{"m": 1}, {"m": 2}], None, (1, 1), {"mse": np.array([2.0, 1.0])})
    >>> plot(table).get_xlabel()
    'm'
    """
    if x is None:
        varying = [name for name in table.points[0] if len(_levels(table, name)) > 1]
        free = [name for name in varying if name not in (y, by)]
        if (y, by) == (None, None) and len(free) == 2:
            y = free[1]
        x = free[0] if free else next(iter(table.points[0]))
    if y is not None:
        return heat_map(table, x, y, value=value, ax=ax)
    return lines(table, x, value=value, by=by, ax=ax)


def lines(
    table: Table, x: str, *, value: str = "mse", by: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the mean over keys and streams, ± a standard deviation, against one setting.

    Settings that are neither ``x`` nor ``by`` are at their best.

    Args:
      table: the table of a sweep.
      x: the setting along the axis.
      value: the column that is drawn.
      by: a setting with a line for each of its values.
      ax: where to draw; by default the only axes of a new figure.
    """
    axes: Any = plots.grid(1, 1)[1][0, 0] if ax is None else ax
    levels = _levels(table, x)
    numeric = _are_numbers(levels)
    at = np.asarray(levels, float) if numeric else np.arange(float(len(levels)))
    best = _best(table, value, [x] if by is None else [x, by])
    for k, line in enumerate([None] if by is None else _levels(table, by)):
        last = () if by is None else (_identity(line),)
        mean, spread = np.array([best.get((_identity(v), *last), NOTHING) for v in levels]).T
        style = plots.STYLES[k % len(plots.STYLES)]
        label = None if by is None else f"{by} = {_label(line)}"
        axes.plot(at, mean, marker="o", markersize=3, label=label, **style)
        axes.fill_between(at, mean - spread, mean + spread, color=style["color"], alpha=0.15, lw=0)
    axes.set(xlabel=x, ylabel=value)
    if not numeric:
        axes.set_xticks(at, [_label(level) for level in levels])
    elif _is_wide(at):
        axes.set_xscale("log")
    axes.grid(color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if by is not None:
        axes.legend(frameon=False, fontsize="small", handlelength=4)
    return axes


def heat_map(table: Table, x: str, y: str, *, value: str = "mse", ax: Axes | None = None) -> Axes:
    """Draw the mean over keys and streams against two settings, with a dot at the least.

    All other settings are at their best. Cells without a finite value are white.
    """
    axes: Any = plots.grid(1, 1)[1][0, 0] if ax is None else ax
    across, up = _levels(table, x), _levels(table, y)
    best = _best(table, value, [x, y])
    cells = np.array(
        [[best.get((_identity(a), _identity(b)), NOTHING)[0] for a in across] for b in up]
    )
    drawn, label = cells, value
    finite = cells[np.isfinite(cells)]
    if finite.size and _is_wide(finite):
        drawn, label = np.log10(cells), f"log₁₀ {value}"
    image = axes.imshow(np.ma.masked_invalid(drawn), origin="lower", aspect="auto", cmap="viridis")
    axes.set_xticks(*_ticks(across), rotation=45, ha="right")
    axes.set_yticks(*_ticks(up))
    axes.set(xlabel=x, ylabel=y)
    if finite.size:
        row, column = np.unravel_index(np.nanargmin(cells), cells.shape)
        axes.plot(column, row, "o", color="white", markeredgecolor="black")
    axes.figure.colorbar(image, ax=axes, label=label)
    return axes


def _levels(table: Table, name: str) -> list[Any]:
    """The different values of a setting, sorted if they are numbers."""
    if name not in table.points[0]:
        settings = ", ".join(table.points[0])
        raise ValueError(f"{name!r} is not a setting of this sweep; they are {settings}")
    values = list({_identity(point[name]): point[name] for point in table.points}.values())
    return sorted(values) if _are_numbers(values) else values


def _best(table: Table, value: str, names: list[str]) -> dict[Any, tuple[float, float]]:
    """Mean and deviation at the best of all points that have the same values of these settings."""
    best: dict[Any, tuple[float, float]] = {}
    for point, mean, spread in zip(
        table.points, table.mean(value), table.deviation(value), strict=True
    ):
        at = tuple(_identity(point[name]) for name in names)
        if np.isfinite(mean) and mean < best.get(at, (np.inf, 0))[0]:
            best[at] = float(mean), float(spread)
    return best


def _ticks(levels: list[Any]) -> tuple[list[int], list[str]]:
    """Positions and labels of at most TICKS levels."""
    positions = list(range(0, len(levels), -(-len(levels) // TICKS)))
    return positions, [_label(levels[position]) for position in positions]


def _are_numbers(values: Sequence[object]) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _is_wide(values: np.ndarray) -> bool:
    return bool(values.min() > 0 and values.max() >= WIDE * values.min())


def _identity(value: object) -> str:
    """A text that differs between different values of a setting."""
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


def _label(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split())
