"""Columns that are known in advance: each row gets their values at the next H rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from jboost.core import checks


def with_known(
    xs: ArrayLike, known: Sequence[int], horizon: int, after: ArrayLike | None = None
) -> np.ndarray:
    """Return xs with H further columns for each known one, as :class:`jboost.Forecast` wants.

    The columns come one known column after the other, each at the next 1 … H rows. What is not
    known is NaN, and then counts as at the present row.

    Args:
      xs: (T, r) inputs.
      known: the numbers of the columns that are known in advance.
      horizon: H.
      after: the known columns at the rows after the last one, (n, k), as far as they are known.

    >>> with_known([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]], [0], 2, after=[[4.0]]).tolist()
    [[1.0, 5.0, 2.0, 3.0], [2.0, 6.0, 3.0, 4.0], [3.0, 7.0, 4.0, nan]]
    """
    xs, horizon = np.asarray(xs), checks.whole("horizon", horizon, at_least=1)
    if xs.ndim != 2:
        raise ValueError(f"xs must have shape (T, r); got {xs.shape}")
    columns = checked_columns("known", known, xs.shape[1])
    dtype = np.result_type(xs.dtype, np.float32)
    later = np.zeros((0, len(columns))) if after is None else np.asarray(after)
    if later.ndim != 2 or later.shape[1] != len(columns):
        raise ValueError(f"after must have shape (n, {len(columns)}); got {later.shape}")
    unknown = np.full((max(horizon - len(later), 0), len(columns)), np.nan, dtype)
    longer = np.concatenate([xs[:, columns].astype(dtype), later[:horizon], unknown])
    windows = np.lib.stride_tricks.sliding_window_view(longer[1:], horizon, axis=0)  # (T, k, H)
    return np.column_stack([xs, windows.reshape(len(xs), -1)]).astype(dtype)


def checked_columns(name: str, values: object, width: int | None = None) -> tuple[int, ...]:
    """Return the numbers of some columns, all different and below the width."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise TypeError(f"{name} must be a tuple of column numbers; got {checks.shown(values)}")
    numbers = tuple(checks.whole(name, number, at_least=0) for number in values)
    if len({*numbers}) < len(numbers):
        raise ValueError(f"{name} must name each column once; got {checks.shown(values)}")
    if width is not None and max(numbers, default=-1) >= width:
        raise ValueError(f"{name} must be columns below {width}, the width of xs; got {numbers}")
    return numbers
