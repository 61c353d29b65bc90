"""A picture of tuning: the error and the settings at every evaluation."""

import numpy as np

from jboost import plots
from jboost.tuning.tune import History


def tuning(history: History) -> np.ndarray:
    """Draw the error of every evaluation, and beside it the values of each setting.

    A dot is the choice of a window; a thin line separates two windows. Returns the axes.

    >>> import jboost as jb
    >>> from jboost.tuning.tune import tune
    >>> xs, ds = jb.streams.duffing(400)
    >>> axes = tuning(tune(jb.SGD(step_size=0.001), xs, ds, steps=5)[1])
    >>> [ax.get_ylabel() for ax in axes]
    ['error on the rows tuned on', 'step_size']
    """
    panels = {"error on the rows tuned on": history.value, **history.parameters}
    _, axes = plots.grid(1, len(panels))
    n = np.arange(1, len(history.value) + 1)
    for ax, (name, values) in zip(axes[0], panels.items(), strict=True):
        values = np.asarray(values, float).reshape(len(n), -1)
        for k in range(values.shape[1]):
            ax.plot(n, values[:, k], **plots.STYLES[k % len(plots.STYLES)])
            ax.plot(n[history.best], values[history.best, k], "o", color="black", markersize=5)
        for last in np.flatnonzero(np.diff(history.window)):
            ax.axvline(last + 1.5, color="0.7", linewidth=0.8)
        if (values[np.isfinite(values)] > 0).all():
            ax.set_yscale("log")
        ax.set(xlabel="evaluation", ylabel=name)
        ax.grid(color="0.9", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    return axes[0]
