"""Pictures of a run: its errors beside the controls', its intervals, what each learner did.

Every function draws on the axes that it is given, or on those of a new figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from jboost import plots
from jboost.core import checks, extras
from jboost.reports.accounts import Bands, Learners, step_of
from jboost.reports.importance import Importance
from jboost.reports.spans import Spans
from jboost.reports.tally import Curves

MOST_COLUMNS = 12  # in the picture of what columns add: more names do not fit
TimesAt = Callable[[np.ndarray], np.ndarray]  # tells when parts of a run, 0 to 1, were done

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    TwoAxes = tuple[Axes, Axes]


def error_over_time(
    curves: Curves, *, when: np.ndarray | None = None, axes: TwoAxes | None = None
) -> TwoAxes:
    """Draw two panels: the mean squared error so far, and of each span of the stream.

    ``when`` are the times of the spans; without them the answers are counted.

    >>> from jboost.reports.tally import Tally
    >>> from jboost.running.blocks import Block
    >>> tally, d = Tally("mine"), np.arange(9.0)
    >>> tally.add(Block(0, d, d + 0.5, np.zeros(9, bool)))
    >>> [len(ax.lines) for ax in error_over_time(tally.curves())]
    [3, 3]
    """
    ends, *errors = curves
    if not len(ends):
        raise ValueError("there is nothing to draw: no target was seen")
    axes = axes or _new_axes()
    titles = ("mean squared error so far", "mean squared error of each span")
    for ax, title, by_name in zip(axes, titles, errors, strict=True):
        model, reference, *others = by_name.items()  # the first style is for the reference
        for style, (name, values) in zip(plots.STYLES, [reference, model, *others], strict=False):
            ax.plot(ends if when is None else when, values, label=name, **style)
        values = np.concatenate([*by_name.values()])
        if (values[np.isfinite(values)] > 0).any():
            ax.set_yscale("log", nonpositive="mask")
        _finish(ax, title, "answers seen", times=when is not None)
    axes[0].legend(frameon=False, fontsize="small", handlelength=4, ncols=2, loc="upper left")
    _make_room(axes[0], 0.15 * -(-len(errors[0]) // 2))
    return axes


def intervals_over_time(
    bands: Bands, *, when: TimesAt | None = None, axes: TwoAxes | None = None
) -> TwoAxes:
    """Draw two panels: the last predictions with their intervals, and the part of targets inside.

    ``when`` tells the times of parts of the run; without it rows are counted.

    >>> from jboost.running.blocks import Block
    >>> bands, d = Bands(0.9), np.arange(9.0)
    >>> bands.add(Block(0, d, d, np.zeros(9, bool), {"low": d - 1, "high": d + 1}))
    >>> [ax.get_title() for ax in intervals_over_time(bands)]
    ['the last 9 rows', 'answers inside, of each span']
    """
    last, inside = axes or _new_axes()
    rows, d, prediction, low, high, seconds = bands.last.T
    steps = np.diff(seconds)
    timed = bool(np.isfinite(seconds).all() and (steps >= 0).all() and (steps > 0).any())
    if timed:
        rows = (seconds * 1e6).astype("datetime64[us]")
    # A bar for each row, without a line through them: neighbouring rows may be unrelated.
    bounded = np.isfinite(low) & np.isfinite(high)
    bars = last.vlines(rows[bounded], low[bounded], high[bounded], color="#56B4E9", zorder=1)
    bars.set(label=f"{bands.coverage:g} interval", linewidth=min(2.5, 250 / max(len(rows), 1)))
    outside = (d < low) | (d > high)
    last.plot(rows, prediction, "_", color="#0072B2", markersize=3, label="prediction")
    last.plot(rows[~outside], d[~outside], ".", color="black", markersize=4, label="answer")
    last.plot(rows[outside], d[outside], ".", color="#D55E00", markersize=4, label="answer outside")
    last.legend(frameon=False, fontsize="small", ncols=2, loc="upper left")
    _make_room(last, 0.3)
    _finish(last, f"the last {len(rows):,} rows", "row", times=timed)
    ends, means = bands.spans.over_time(at_least=100)
    inside.axhline(bands.coverage, color="black", linewidth=1.0, label="wanted")
    at = ends if when is None else when(ends / ends[-1:])
    inside.plot(at, means[:, 0], label="measured", **plots.STYLES[1])
    inside.set_ylim(bottom=min(0.5, bands.coverage), top=1.02)
    inside.legend(frameon=False, fontsize="small", loc="lower right")
    _finish(inside, "answers inside, of each span", "rows seen", times=when is not None)
    return last, inside


def learners_of(
    learners: Learners,
    *,
    names: Sequence[str] | None = None,
    when: TimesAt | None = None,
    axes: TwoAxes | None = None,
) -> TwoAxes:
    """Draw two panels over time with a row for each learner: λ, and the weight z.

    Where every λ is 1, as in a mixture, the panels are z and the share of each learner. ``when``
    tells the times of parts of the run; without it samples are counted.
    """
    first, second = axes or _new_axes()
    lam, z, T, m = learners.lam, learners.z, learners.spans.rows, learners.m
    if np.nanmin(lam) < 1:
        _heat(first, lam.T, T, m, "λ", when)
        _heat(second, z.T, T, m, "z", when)
    else:
        _heat(first, z.T, T, m, "z", when)
        _bars(second, learners.shares, step=step_of(m))
    if names is not None and len(names) == m == len(z.T):
        first.set_yticks(range(1, m + 1), names, fontsize="small")
        first.set_ylabel("")
    return first, second


def importance_over_time(
    importance: Importance, names: Sequence[str], *,
    when: TimesAt | None = None, axes: TwoAxes | None = None,
) -> TwoAxes:  # fmt: skip
    """Draw two panels: how much columns move the predictions in all, and over time.

    The panels show the most important columns; ``names`` has those of all. ``when`` tells the times
    of parts of the run; without it rows are counted.
    """
    whole, over_time = axes or _new_axes()
    shown = importance.order[:MOST_COLUMNS]
    labels = [checks.printable(names[i])[:20] for i in shown]
    whole.barh(np.arange(len(shown)), importance.mean[shown], color="#0072B2")
    whole.set_yticks(np.arange(len(shown)), labels, fontsize="small")
    whole.invert_yaxis()
    whole.set_title("mean size of a column's part", fontsize="medium")
    whole.spines[["top", "right"]].set_visible(False)
    ends, means = importance.spans.over_time(at_least=10)
    at = ends if when is None else when(ends / ends[-1:])
    for style, column, label in zip(plots.STYLES, shown, labels, strict=False):
        over_time.plot(at, means[:, column], label=label, **style)
    over_time.legend(frameon=False, fontsize="small", handlelength=4, ncols=2, loc="upper left")
    _make_room(over_time, 0.3)
    _finish(over_time, "mean size of a part, of each span", "rows seen", times=when is not None)
    return whole, over_time


def learners_over_time(values: ArrayLike, name: str, *, ax: Axes | None = None) -> Axes:
    """Draw a row for each learner, time to the right, the mean of each span as a colour.

    Args:
      values: (T, m), such as λ or z, recorded with ``observe=lambda state, info: info.lam``.
      name: what the values are called.
      ax: where to draw.

    >>> import jboost as jb
    >>> model = jb.bsgd_wu(5, target_mse=0.1, step_size=0.1)
    >>> _, trace = jb.run(model, *jb.streams.duffing(300), observe=lambda state, info: info.lam)
    >>> ax = learners_over_time(trace.observed, "λ")
    >>> ax.get_ylabel(), ax.images[0].get_array().shape
    ('learner', (5, 75))
    """
    array = _per_learner("values", values)
    T, m = array.shape
    spans = Spans(m)
    spans.add(array)
    return _heat(ax or _new_axes(1)[0], spans.over_time()[1].T, T, m, name)


def contributions(y: ArrayLike, z: ArrayLike, d: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw bars: the share that each learner has in the prediction Σ_k z_k y_k.

    It is the learner's share of what the prediction has in common with the target,
    cov(z_k y_k, d) / Σ_j cov(z_j y_j, d). The shares add up to one; a learner with a negative
    share holds the others back.

    Args:
      y: (T, m), the learners' predictions, ``info.y``.
      z: (T, m), their weights, ``info.z``.
      d: (T,), the targets, in any units.
      ax: where to draw.

    >>> d = np.array([1.0, 2.0, 4.0])
    >>> ax = contributions(np.stack([d, 2 * d], axis=1), np.full((3, 2), 0.5), d)
    >>> [round(float(bar.get_height()), 3) for bar in ax.patches]
    [0.333, 0.667]
    """
    y, z = _per_learner("y", y), _per_learner("z", z)
    d = np.asarray(d, np.float64)
    if y.shape != z.shape or d.shape != y.shape[:1]:
        raise ValueError(f"y, z and d must be of one run; got {y.shape}, {z.shape} and {d.shape}")
    finite = np.isfinite(d)
    covariance = (d[finite] - d[finite].mean()) @ (z * y)[finite]
    return _bars(ax or _new_axes(1)[0], covariance / (covariance.sum() or 1.0))


def _heat(
    ax: Axes, means: np.ndarray, T: int, m: int, name: str, when: TimesAt | None = None
) -> Axes:
    """Draw means, (learners, spans), as colours; ``when`` tells the times of parts of the run."""
    finite = means[np.isfinite(means)]
    signed = bool((finite < 0).any())
    largest = float(np.abs(finite).max(initial=0.0)) or 1.0
    if when is None:
        sides = (0, T, m + 0.5, 0.5)
        image = ax.imshow(means, aspect="auto", interpolation="nearest", extent=sides)
    else:  # spans of the same number of samples may be of different length
        edges = when(np.linspace(0, 1, means.shape[1] + 1))
        image = ax.pcolormesh(edges, np.linspace(0.5, m + 0.5, len(means) + 1), means)
        ax.invert_yaxis()
    image.set_cmap("PuOr" if signed else "cividis")
    image.set_clim(-largest if signed else 0.0, largest)
    tickers = extras.need("matplotlib.ticker", "plot")
    ax.yaxis.set_major_locator(tickers.MaxNLocator(10, integer=True, min_n_ticks=1))
    ax.set_ylabel("learner")
    _label(ax, f"{name} over time", "samples seen", times=when is not None)
    ax.figure.colorbar(image, ax=ax)
    return ax


def _bars(ax: Axes, shares: np.ndarray, step: int = 1) -> Axes:
    """Draw a bar for each share; the learners are numbered 1, 1 + step, ...."""
    ax.bar(np.arange(1, step * len(shares) + 1, step), shares, width=0.8 * step, color="#0072B2")
    ax.axhline(0.0, color="black", linewidth=0.8)
    _label(ax, "share of the prediction", "learner", ticks=10, frame=False)
    return ax


def _per_learner(name: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name} must have shape (T, m), T >= 1; got {array.shape}")
    return array


def _new_axes(columns: int = 2) -> TwoAxes:
    """Axes side by side on a new figure: two, or one."""
    return tuple(plots.grid(1, columns)[1][0])


def _finish(ax: Axes, title: str, time: str, *, times: bool = False) -> None:
    """Add titles and a light grid, and remove the frame. Below are ``times``, or numbers."""
    _label(ax, title, time, frame=False, times=times)
    ax.grid(color="0.9", linewidth=0.6)
    ax.margins(x=0.01)


def _make_room(ax: Axes, share: float) -> None:
    """Raise the upper end of the y-axis by a share of its length, for a legend."""
    bottom, top = ax.get_ylim()
    if ax.get_yscale() == "log":
        ax.set_ylim(top=top * (top / bottom) ** share)
    else:
        ax.set_ylim(top=top + share * (top - bottom))


def _label(
    ax: Axes, title: str, below: str, *, ticks: int = 5, frame: bool = True, times: bool = False
) -> None:
    """Add titles, and below times, or whole numbers with commas; leave or remove the frame."""
    if times:
        dates = extras.need("matplotlib.dates", "plot")
        locator = dates.AutoDateLocator(maxticks=6)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    else:
        tickers = extras.need("matplotlib.ticker", "plot")
        ax.xaxis.set_major_locator(tickers.MaxNLocator(ticks, integer=True, min_n_ticks=1))
        ax.xaxis.set_major_formatter(tickers.StrMethodFormatter("{x:,.0f}"))
        ax.set_xlabel(below)
    ax.set_title(title, fontsize="medium")
    ax.spines[["top", "right"]].set_visible(frame)
