"""Pictures of a run: its error over time beside the controls', its band, what each learner did.

A booster's λ and z come from ``observe``; see :func:`learners_over_time`. Every function draws on
the axes that it is given, or else on a new figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jboost import plots
from jboost.core import extras
from jboost.reports.tally import Curves
from jboost.reports.watch import Bands, Learners, step_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Pair = tuple[Axes, Axes]

SPANS = 120  # of the stream, in a picture with a row for each learner


def error_over_time(curves: Curves, *, axes: Pair | None = None) -> Pair:
    """Two panels: the mean squared error so far, and of each span of the stream.

    >>> from jboost.reports.tally import Tally
    >>> tally = Tally("mine")
    >>> tally.add(np.arange(9.0), np.arange(9.0) + 0.5)
    >>> [len(ax.lines) for ax in error_over_time(tally.curves())]
    [3, 3]
    """
    if not len(curves.seen):
        raise ValueError("there is nothing to draw: no answer was seen")
    axes = axes or _pair()
    so_far = ("mean squared error so far", curves.seen, curves.so_far)
    within = ("mean squared error of each span", curves.ends, curves.within)
    for ax, (label, seen, by_name) in zip(axes, (so_far, within), strict=True):
        for style, (name, values) in zip(plots.STYLES, _controls_first(by_name), strict=False):
            ax.plot(seen, values, label=name, **style)
        values = np.concatenate([*by_name.values()])
        if (values[np.isfinite(values)] > 0).any():
            ax.set_yscale("log", nonpositive="mask")
        _dress(ax, label, "answers seen")
    axes[0].legend(frameon=False, fontsize="small", handlelength=4)
    return axes


def intervals_over_time(bands: Bands, *, axes: Pair | None = None) -> Pair:
    """Two panels: the last predictions in their band, and which part of the answers lay inside.

    >>> bands, d = Bands(0.9), np.arange(9.0)
    >>> bands.add(0, d, d, d - 1, d + 1)
    >>> [ax.get_title() for ax in intervals_over_time(bands)]
    ['the last 9 rows', 'answers inside, of each span']
    """
    last, inside = axes or _pair()
    rows, d, prediction, low, high = bands.last.T
    # A bar for each row and no line through them: rows need not have to do with one another.
    some = np.isfinite(low) & np.isfinite(high)
    bars = {"color": "#56B4E9", "linewidth": min(2.5, 250 / max(len(rows), 1)), "zorder": 1}
    last.vlines(rows[some], low[some], high[some], label=f"{bands.coverage:g} interval", **bars)
    out = (d < low) | (d > high)
    last.plot(rows, prediction, "_", color="#0072B2", markersize=3, label="prediction")
    for chosen, color, name in ((~out, "black", "answer"), (out, "#D55E00", "answer outside")):
        last.plot(rows[chosen], d[chosen], ".", color=color, markersize=4, label=name)
    last.legend(frameon=False, fontsize="small", ncols=2, loc="upper left")
    low, high = last.get_ylim()
    last.set_ylim(low, high + 0.3 * (high - low))  # room for the names
    _dress(last, f"the last {len(rows):,} rows", "row")
    ends, means = bands.spans.over_time(at_least=100)
    inside.axhline(bands.coverage, color="black", linewidth=1.0, label="wanted")
    inside.plot(ends, means[:, 0], label="measured", **plots.STYLES[1])
    inside.set_ylim(bottom=min(0.5, bands.coverage), top=1.02)
    inside.legend(frameon=False, fontsize="small", loc="lower right")
    _dress(inside, "answers inside, of each span", "rows seen")
    return last, inside


def learners_of(
    learners: Learners, *, names: Sequence[str] | None = None, axes: Pair | None = None
) -> Pair:
    """Two panels over time with a row for each learner: λ, and its weight z.

    Where every λ is 1, as in a mixture, z comes first and then each learner's share.
    """
    first, second = axes or _pair()
    lam, z, T, m = learners.lam, learners.z, learners.rows, learners.m
    if np.nanmin(lam) < 1:
        _heat(first, lam.T, T, m, "λ")
        _heat(second, z.T, T, m, "z")
    else:
        _heat(first, z.T, T, m, "z")
        _shares(second, learners.shares, step=step_of(m))
    if names is not None and len(names) == m == len(z.T):
        first.set_yticks(range(1, m + 1), names, fontsize="small")
        first.set_ylabel("")
    return first, second


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
    return _heat(ax, means, T, m, name)


def _heat(ax: Axes, means: np.ndarray, T: int, m: int, name: str) -> Axes:
    """Means, (learners, spans), as colours."""
    known = means[np.isfinite(means)]
    signed = bool((known < 0).any())
    most = float(np.abs(known).max(initial=0.0)) or 1.0
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
    ax.figure.colorbar(image, ax=ax)
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
    return _shares(ax, common / (common.sum() or 1.0))


def _shares(ax: Axes, shares: np.ndarray, step: int = 1) -> Axes:
    """A bar for each learner, or for every so many-th."""
    ax.bar(np.arange(1, step * len(shares) + 1, step), shares, width=0.8 * step, color="#0072B2")
    ax.axhline(0.0, color="black", linewidth=0.8)
    tickers = extras.need("matplotlib.ticker", "plot")
    ax.xaxis.set_major_locator(tickers.MaxNLocator(10, integer=True, min_n_ticks=1))
    ax.set_xlabel("learner")
    ax.set_title("share of the prediction", fontsize="medium")
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


def _pair() -> Pair:
    left, right = plots.grid(1, 2)[1][0]
    return left, right


def _dress(ax: Any, title: str, time: str) -> None:
    """Thousands with commas, and no frame."""
    tickers = extras.need("matplotlib.ticker", "plot")
    ax.xaxis.set_major_locator(tickers.MaxNLocator(5, integer=True))
    ax.xaxis.set_major_formatter(tickers.StrMethodFormatter("{x:,.0f}"))
    ax.set_title(title, fontsize="medium")
    ax.set_xlabel(time)
    ax.grid(color="0.9", linewidth=0.6)
    ax.margins(x=0.01)
    ax.spines[["top", "right"]].set_visible(False)
