"""The look of the figures: lines that differ without colour, labels, error over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jboost import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = ("", "o", "s", "^", "D", "v")


def style(k: int, *, markers: bool = False) -> dict[str, Any]:
    """The colour, pattern and, if asked for, marker of the k-th line of a plot."""
    look = dict(plots.STYLES[k % len(plots.STYLES)])
    if markers:
        look |= {"marker": MARKERS[k % len(MARKERS)], "markersize": 4}
    return look


def dress(ax: Axes, title: str, xlabel: str, ylabel: str, **legend: Any) -> None:
    """Give a plot its labels, a light grid and, where lines have names, a legend."""
    ax.set_title(title, fontsize="medium")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if ax.get_legend_handles_labels()[0]:
        plate = {"facecolor": "white", "edgecolor": "none", "framealpha": 0.85}
        options = plate | {"fontsize": "small", "handlelength": 4} | legend
        ax.legend(**options)


def ase_panel(
    ax: Axes, curves: dict[str, dict[str, Any]], title: str, settled: float = 0.2
) -> None:
    """Plot the mean squared error so far, with ± one standard deviation where there is one.

    Each curve has ``t``, ``mean`` and perhaps ``sd``. The first ``settled`` part of the stream,
    where errors are large, does not count for the range of the axis.
    """
    low, high = np.inf, -np.inf
    for k, (name, curve) in enumerate(curves.items()):
        t, mean = np.asarray(curve["t"], float), np.asarray(curve["mean"], float)
        ax.plot(t, mean, label=name, **style(k))
        if "sd" in curve:
            sd = np.asarray(curve["sd"], float)
            ax.fill_between(t, mean - sd, mean + sd, color=style(k)["color"], alpha=0.15, lw=0)
        late = t >= settled * t[-1]
        low, high = min(low, float(mean[late].min())), max(high, float(mean[late].max()))
    room = max(high - low, 1e-3 * high)
    ax.set_ylim(low - 0.1 * room, high + 0.6 * room)
    ax.xaxis.set_major_formatter(lambda t, _: f"{t:,.0f}")
    dress(ax, title, "samples seen, t", "accumulated squared error / t", loc="upper right")
