"""Pictures with matplotlib, drawn on figures of their own: no pyplot, no window, no global state.

Every function takes data and returns axes; ``save(ax.figure, "name.png")`` keeps the picture.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jboost.core import extras

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart without colour by the pattern, and without the pattern by colour (Okabe and Ito's, safe
# for colour-blind readers). The first is the reference that the others are held against.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "black", "linestyle": "-", "linewidth": 1.0},
    {"color": "#D55E00", "linestyle": (0, (6, 1.5)), "linewidth": 1.8},
    {"color": "#0072B2", "linestyle": (0, (6, 1.5, 1, 1.5)), "linewidth": 1.8},
    {"color": "#009E73", "linestyle": (0, (1, 1.2)), "linewidth": 2.2},
    {"color": "#CC79A7", "linestyle": "-", "linewidth": 2.6},
    {"color": "#E69F00", "linestyle": (0, (3, 1, 1, 1, 1, 1)), "linewidth": 1.8},
)
POINTS = 800  # more cannot be told apart in print


def grid(rows: int, columns: int, *, width: float = 4.6, height: float = 3.1) -> tuple[Figure, Any]:
    """A new figure and its (rows, columns) array of axes; sizes in inches, of each."""
    figures = extras.need("matplotlib.figure", "plot")
    figure = figures.Figure(figsize=(columns * width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def rows(count: int, *, width: float = 4.6, height: float = 3.1) -> tuple[Figure, list[Any]]:
    """A new figure and a pair of axes for each row, each row as wide as it likes."""
    figures = extras.need("matplotlib.figure", "plot")
    figure = figures.Figure(figsize=(2 * width, count * height), layout="constrained")
    parts = figure.subfigures(count, 1, squeeze=False)[:, 0]
    return figure, [tuple(part.subplots(1, 2)) for part in parts]


def ase_curves(
    curves: Mapping[str, Any],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    legend: str | None = None,
    settled: float = 0.25,
) -> Axes:
    """Accumulated squared error over time, one line per name, the error on a logarithmic axis.

    Args:
      curves: (T,) errors by name, as :func:`jboost.ase` gives them; a reference first.
      ax: where to draw; by default the only axes of a new figure.
      title: what stands above.
      legend: what stands above the names.
      settled: the part of the stream, in [0, 1), that does not set the vertical range: a few large
        early errors rule the mean there and would flatten what follows.

    >>> ax = ase_curves({"one": [1.0, 0.6, 0.5], "two": [2.0, 1.5, 1.2]})
    >>> ax.get_yscale(), len(ax.lines)
    ('log', 2)
    """
    if not curves:
        raise ValueError("curves must hold at least one curve by its name; got none")
    if not 0 <= settled < 1:
        raise ValueError(f"settled must be a number with 0 <= settled < 1; got {settled!r}")
    if ax is None:
        ax = grid(1, 1)[1][0, 0]
    assert ax is not None
    rest = []
    for k, (name, values) in enumerate(curves.items()):
        values = np.asarray(values, np.float64)
        if values.ndim != 1 or not values.size:
            raise ValueError(f"curves[{name!r}] must have shape (T,), T >= 1; got {values.shape}")
        T = len(values)
        t = np.unique(np.linspace(1, T, min(POINTS, T)).round().astype(int))
        ax.plot(t, values[t - 1], label=name, **STYLES[k % len(STYLES)])
        rest.append(values[int(settled * T) :])
    ax.set(xlabel="samples seen, t", ylabel="accumulated squared error / t")
    ax.margins(x=0.01)
    if title is not None:
        ax.set_title(title, fontsize="medium")
    _fit(ax, np.concatenate(rest))
    ax.grid(color="0.9", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(
        title=legend,
        loc="upper right",
        frameon=False,
        handlelength=4,
        fontsize="small",
        title_fontsize="small",
        alignment="left",
    )
    return ax


def save(figure: Any, path: str | Path, *, dpi: int = 120) -> None:
    """Write a figure; a PNG with a palette, which is a third of the size and looks the same."""
    if Path(path).suffix.lower() != ".png":
        figure.savefig(path, dpi=dpi)
        return
    image = extras.need("PIL.Image", "plot")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    plain = image.open(drawn).convert("RGB").quantize(256, dither=image.Dither.NONE)
    plain.save(path, format="png", optimize=True, dpi=(dpi, dpi))


def _fit(ax: Axes, values: np.ndarray) -> None:
    """A log axis around the values with room above for a legend, and ticks in plain numbers."""
    tickers = extras.need("matplotlib.ticker", "plot")
    ax.xaxis.set_major_locator(tickers.MaxNLocator(5, integer=True))
    ax.xaxis.set_major_formatter(tickers.StrMethodFormatter("{x:,.0f}"))
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return
    ax.set_yscale("log")
    low, high = values.min(), values.max()
    span = max(high / low, 1.02)
    ax.set_ylim(low / span**0.08, high * span**0.7)
    if span < 20:  # too short for powers of ten
        ax.yaxis.set_major_locator(tickers.MaxNLocator(8, steps=[1, 2, 5, 10]))
        ax.yaxis.set_minor_locator(tickers.NullLocator())
        ax.yaxis.set_major_formatter(tickers.StrMethodFormatter("{x:.3g}"))
