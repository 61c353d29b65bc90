"""Pictures with matplotlib, without pyplot: no window opens and no global state changes."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from jboost.core import checks, extras

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lines differ in pattern, for print without colour, and in colour (of Okabe and Ito's palette, safe
# for colour-blind readers). The first style is for the reference that the others are compared with.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "black", "linestyle": "-", "linewidth": 1.0},
    {"color": "#D55E00", "linestyle": (0, (6, 1.5)), "linewidth": 1.8},
    {"color": "#0072B2", "linestyle": (0, (6, 1.5, 1, 1.5)), "linewidth": 1.8},
    {"color": "#009E73", "linestyle": (0, (1, 1.2)), "linewidth": 2.2},
    {"color": "#CC79A7", "linestyle": "-", "linewidth": 2.6},
    {"color": "#E69F00", "linestyle": (0, (3, 1, 1, 1, 1, 1)), "linewidth": 1.8},
)
POINTS = 800  # of a line; print does not show more


def grid(rows: int, columns: int, *, width: float = 4.6, height: float = 3.1) -> tuple[Figure, Any]:
    """Return a new figure and its (rows, columns) array of axes; the size in inches of each."""
    new = _figure(columns * width, rows * height)
    return new, new.subplots(rows, columns, squeeze=False)


def rows(count: int, *, width: float = 4.6, height: float = 3.1) -> tuple[Figure, list[Any]]:
    """Return a new figure and a pair of axes per row. No row sets the widths of another."""
    new = _figure(2 * width, count * height)
    strips = new.subfigures(count, 1, squeeze=False)[:, 0]
    return new, [tuple(strip.subplots(1, 2)) for strip in strips]


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes that a caller passed, or the only axes of a new figure."""
    return grid(1, 1)[1][0, 0] if ax is None else ax


def ase_curves(
    curves: Mapping[str, ArrayLike], *, ax: Axes | None = None,
    title: str | None = None, legend: str | None = None, settled: float = 0.25,
) -> Axes:  # fmt: skip
    """Draw accumulated squared errors over time, a line per name, on a logarithmic axis.

    Args:
      curves: (T,) errors by name, as :func:`jboost.ase` returns them; the reference first.
      ax: the axes to draw on; None: those of a new figure.
      title, legend: the titles of the axes and of the legend.
      settled: the share of the stream, in [0, 1), that does not set the vertical range. A few large
        early errors dominate the mean there and would flatten what follows.

    >>> ax = ase_curves({"one": [1.0, 0.6, 0.5], "two": [2.0, 1.5, 1.2]})
    >>> ax.get_yscale(), len(ax.lines)
    ('log', 2)
    """
    if not curves:
        raise ValueError("curves must hold at least one curve by its name; got none")
    settled = checks.number("settled", settled, at_least=0, below=1)
    ax = axes_or_new(ax)
    late = []
    for k, (name, values) in enumerate(curves.items()):
        values = np.asarray(values, np.float64)
        T = values.size
        if values.shape != (T,) or T == 0:
            raise ValueError(f"curves[{name!r}] must have shape (T,), T >= 1; got {values.shape}")
        t = np.unique(np.linspace(1, T, min(POINTS, T)).round().astype(int))
        ax.plot(t, values[t - 1], label=name, **STYLES[k % len(STYLES)])
        late.append(values[int(settled * T) :])
    ax.set(xlabel="samples seen, t", ylabel="accumulated squared error / t")
    ax.margins(x=0.01)
    if title is not None:
        ax.set_title(title, fontsize="medium")
    _fit(ax, np.concatenate(late))
    ax.grid(color="0.9", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    small: dict[str, Any] = {"fontsize": "small", "title_fontsize": "small", "handlelength": 4}
    ax.legend(title=legend, loc="upper right", frameon=False, alignment="left", **small)
    return ax


def fan(
    forecast: ArrayLike, low: ArrayLike | None = None, high: ArrayLike | None = None, *,
    past: ArrayLike | None = None, answers: ArrayLike | None = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw a forecast after the answers before it, with its intervals.

    Args:
      forecast: (H,), of the next H answers.
      low, high: (H,), the ends of the intervals.
      past: the latest answers, oldest first.
      answers: what the answers were, as far as they came.
      ax: the axes to draw on; None: those of a new figure.

    >>> ax = fan([2.0, 3.0], [1.0, 1.0], [3.0, 5.0], past=[1.0, 1.5])
    >>> [line.get_label() for line in ax.lines]
    ['answers', 'forecast']
    """
    ax, past = axes_or_new(ax), np.asarray(() if past is None else past, np.float64)
    y = np.asarray(forecast, np.float64)
    ahead = np.arange(1, len(y) + 1)
    came = past if answers is None else np.append(past, np.asarray(answers, np.float64))
    ax.plot(np.arange(len(came)) - len(past) + 1, came, label="answers", **STYLES[0])
    if low is not None and high is not None:
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        style = {"color": "#56B4E9", "alpha": 0.4, "linewidth": 0, "label": "interval"}
        ax.fill_between(ahead, low, high, **style)
    ax.plot(ahead, y, label="forecast", **STYLES[1])
    return _finished(ax, "rows after the forecast", "the answers and their forecast")


def error_by_horizon(errors: Mapping[str, ArrayLike], *, ax: Axes | None = None) -> Axes:
    """Draw errors by horizon, a line per name; naive forecasts belong beside the model.

    Args:
      errors: (H,) errors by name; the reference first.
      ax: the axes to draw on; None: those of a new figure.

    >>> len(error_by_horizon({"naive": [2.0, 3.0], "mine": [1.0, 2.0]}).lines)
    2
    """
    ax = axes_or_new(ax)
    for number, (name, values) in enumerate(errors.items()):
        heights = np.asarray(values, np.float64)
        ax.plot(np.arange(1, len(heights) + 1), heights, label=name, **STYLES[number % len(STYLES)])
    ax.set_ylim(bottom=0)
    return _finished(ax, "horizon", "mean absolute error by horizon")


def _finished(ax: Axes, below: str, title: str) -> Axes:
    ax.set_xlabel(below)
    ax.set_title(title, fontsize="medium")
    ax.grid(color="0.9", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    return ax


def save(figure: Any, path: str | os.PathLike[str], *, dpi: int = 120) -> None:
    """Write a figure. A PNG gets a palette: it looks the same at a third of the size."""
    if Path(path).suffix.lower() != ".png":
        return figure.savefig(path, dpi=dpi)
    image = extras.need("PIL.Image", "plot")
    full = io.BytesIO()
    figure.savefig(full, format="png", dpi=dpi)
    small = image.open(full).convert("RGB").quantize(256, dither=image.Dither.NONE)
    small.save(path, format="png", optimize=True, dpi=(dpi, dpi))


def _figure(width: float, height: float) -> Figure:
    figures = extras.need("matplotlib.figure", "plot")
    figure = figures.Figure(figsize=(width, height), layout="constrained")
    # By this method a notebook shows the picture; else only figures of pyplot are shown there.
    figure._repr_svg_ = functools.partial(_as_svg, figure)
    return figure


def _as_svg(figure: Figure) -> str:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return drawn.getvalue().replace("<svg ", '<svg style="max-width: 100%; height: auto" ', 1)


def _fit(ax: Axes, values: np.ndarray) -> None:
    """Set a log axis around the values, with room above for a legend, and plain numbers."""
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
