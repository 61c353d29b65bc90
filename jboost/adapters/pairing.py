"""Tells when the x of a sample comes in two forms: one to predict with, and one to learn from.

A transformer of river in front of a regressor, such as ``StandardScaler``, learns between the
``predict_one`` and the ``learn_one`` of a sample, so that x differs a little between them. Where a
column grows with time, it is nearly constant behind the scaler, and the little difference is more
than the column changes from row to row: what is learned from one form fails for the other. So the
form that predictions see is learned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NEAR = 0.01  # squared: x may differ by a tenth of what it changes from sample to sample
FEWEST = 16  # samples in turn, after which the difference is no chance
DECAY = 0.9  # of the mean of squared changes


class Pairing(NamedTuple):
    """What the samples so far tell."""

    previous: np.ndarray | None = None  # the x of the prediction before
    spread: float = 0.0  # the mean squared change of x from prediction to prediction
    streak: int = 0  # samples in turn whose two forms are near each other


def matched(
    pairing: Pairing, predicted: tuple[np.ndarray, ...], x: np.ndarray
) -> tuple[Pairing, np.ndarray]:
    """Return what is known after a sample, and the x to learn from.

    Args:
      pairing: what is known before.
      predicted: the x of the predictions since the sample before.
      x: what the sample came with.

    >>> pairing, x = Pairing(), np.zeros(1)
    >>> for t in range(20):
    ...     asked = np.array([t % 3.0])
    ...     pairing, x = matched(pairing, (asked,), asked + 0.01)
    >>> pairing.streak, x.tolist()
    (18, [1.0])
    >>> matched(pairing, (), asked + 0.01)[1].tolist()  # no prediction was made of it
    [1.01]
    """
    if len(predicted) != 1 or predicted[0].shape != x.shape:
        return Pairing(), x
    (seen,) = predicted
    if seen.tobytes() == x.tobytes():
        return Pairing(), x
    previous, spread, streak = pairing
    if previous is None or previous.shape != seen.shape:
        return Pairing(seen), x
    near = float(np.nansum((x - seen) ** 2)) < NEAR * spread
    spread += (1 - DECAY) * (float(np.nansum((seen - previous) ** 2)) - spread)
    streak = streak + 1 if near else 0
    return Pairing(seen, spread, streak), seen if streak > FEWEST else x
