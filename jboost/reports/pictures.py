"""Pictures of a run: its error over time beside the controls', and what each learner did.

A booster's λ and z come from ``observe``; see :func:`learners_over_time`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jboost import extras
from jboost.reports import plots
from jboost.reports.tally import Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPANS = 120  # of the stream, in a picture with a row for each learner


def error_over_time(curves: Curves, *, title: str | None = None) -> tuple[Axes, Axes]:
    """Two panels: the mean squared error so far, and of each span of the stream.

    >>> from jboost.reports.tally import Tally
    >>> tally = Tally("mine")
    >>> tally.add(np.arange(9.0), np.arange(9.0) + 0.5)
    >>> [len(ax.lines) for ax in error_over_time(tally.curves())]
    [3, 3]
    """
    if not len(curves.seen):
        raise ValueError("there is nothing to draw: no answer was seen")
    figure, axes = plots.grid(1, 2)
    so_far = ("mean squared error so far", curves.seen, curves.so_far)
    within = ("mean squared error of each span", curves.ends, curves.within)
    for ax, (label, seen, by_name) in zip(axes[0], (so_far, within), strict=True):
        for style, (name, values) in zip(plots.STYLES, _controls_first(by_name), strict=False):
            ax.plot(seen, values, label=name, **style)
        _dress(ax, np.concatenate([*by_name.values()]))
        ax.set(xlabel="answers seen", title=label)
        ax.title.set_fontsize("medium")
    axes[0, 0].legend(frameon=False, fontsize="small", handlelength=4)
    if title is not None:
        figure.suptitle(title, fontsize="medium")
    return axes[0, 0], axes[0, 1]


def learners_over_time(values: Any, name: str, *, ax: Axes | None = None) -> Axes:
    """A row for each learner, time to the right, the mean of each span as a colour.

    Args:
      values: (T, m), such as λ or z, recorded with ``observe=lambda state, info: info.lam``.
      name: what they are called.
      ax: where to draw; by default the only axes of a new figure.

    >>> import jboost as jb
    >>> model = jb.bsgd_wu(5, target_mse=0.1, step_size=0.1)
    >>> _, trace = jb.run(model, *jb.streams.duffing(300), observe=lambda state, info: info.lam)
    >>> ax = learners_over_time(trace.observed, "λ")
    >>> ax.get_ylabel(), ax.images[0].get_array().shape
    ('learner', (5, 120))
    """
    values = _per_learner("values", values)
    T, m = values.shape
    parts = np.array_split(values, min(SPANS, T))
    means = np.stack([part.mean(axis=0) for part in parts], axis=1)
    ax = plots.grid(1, 1)[1][0, 0] if ax is None else ax
    assert ax is not None
    signed = bool((means < 0).any())
    most = float(np.abs(means).max()) or 1.0
    image = ax.imshow(
        means,
        aspect="auto",
        interpolation="nearest",
        extent=(0, T, m + 0.5, 0.5),
        cmap="PuOr" if signed else "cividis",
        vmin=-most if signed else 0.0,
        vmax=most,
    )
    tickers = extras.need("matplotlib.ticker", "plot")
    ax.xaxis.set_major_locator(tickers.MaxNLocator(5, integer=True))
    ax.xaxis.set_major_formatter(tickers.StrMethodFormatter("{x:,.0f}"))
    ax.yaxis.set_major_locator(tickers.MaxNLocator(10, integer=True, min_n_ticks=1))
    ax.set(xlabel="samples seen", ylabel="learner")
    ax.set_title(f"{name} over time", fontsize="medium")
    ax.figure.colorbar(image, ax=ax, label=name)
    return ax


def contributions(y: Any, z: Any, d: Any, *, ax: Axes | None = None) -> Axes:
    """Bars: the part that each learner has in the prediction Σ_k z_k y_k.

    It is the learner's share of what the prediction has in common with the target,

        cov(z_k y_k, d) / Σ_j cov(z_j y_j, d),

    which add up to one; a negative one holds the others back.

    Args:
      y: (T, m), the learners' predictions, ``info.y``.
      z: (T, m), their weights, ``info.z``.
      d: (T,), the targets, in any units.
      ax: where to draw; by default the only axes of a new figure.

    >>> d = np.array([1.0, 2.0, 4.0])
    >>> ax = contributions(np.stack([d, 2 * d], axis=1), np.full((3, 2), 0.5), d)
    >>> [round(float(bar.get_height()), 3) for bar in ax.patches]
    [0.333, 0.667]
    """
    y, z = _per_learner("y", y), _per_learner("z", z)
    d = np.asarray(d, np.float64)
    if y.shape != z.shape or d.shape != y.shape[:1]:
        raise ValueError(f"y, z and d must be of one run; got {y.shape}, {z.shape} and {d.shape}")
    known = np.isfinite(d)
    common = (d[known] - d[known].mean()) @ (z * y)[known]
    ax = plots.grid(1, 1)[1][0, 0] if ax is None else ax
    assert ax is not None
    ax.bar(np.arange(1, len(common) + 1), common / (common.sum() or 1.0), color="#0072B2")
    ax.axhline(0.0, color="black", linewidth=0.8)
    tickers = extras.need("matplotlib.ticker", "plot")
    ax.xaxis.set_major_locator(tickers.MaxNLocator(10, integer=True, min_n_ticks=1))
    ax.set(xlabel="learner", ylabel="share of the prediction")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _per_learner(name: str, values: Any) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"{name} must have shape (T, m), T >= 1; got {values.shape}")
    return values


def _controls_first(by_name: dict[str, Any]) -> list[tuple[str, Any]]:
    """The reference, which the first style is for; then the model, in the strongest colour."""
    model, reference, *others = by_name.items()
    return [reference, model, *others]


def _dress(ax: Any, values: np.ndarray) -> None:
    """A logarithmic axis for the errors, thousands with commas, and no frame."""
    tickers = extras.need("matplotlib.ticker", "plot")
    ax.xaxis.set_major_locator(tickers.MaxNLocator(5, integer=True))
    ax.xaxis.set_major_formatter(tickers.StrMethodFormatter("{x:,.0f}"))
    if (values[np.isfinite(values)] > 0).any():
        ax.set_yscale("log", nonpositive="mask")
    ax.grid(color="0.9", linewidth=0.6)
    ax.margins(x=0.01)
    ax.spines[["top", "right"]].set_visible(False)
