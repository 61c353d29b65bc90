"""How the rows of a block are laid out for the compiled loops, and its trace put in order again."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
from numpy.typing import ArrayLike

from jboost.core.step import Trace
from jboost.fleets.loops import LENGTHS, compiled_lengths

SPREAD = 64  # a table of so many numbers for each row is quicker than sorting
LARGEST = 2**27  # bytes of the states that are gathered for a piece
Called = tuple[np.ndarray, np.ndarray, Trace]  # of a call: rows, whether each is one, the trace


def calls(
    numbers: np.ndarray, devices: int, call_cost: int, *, rounds: bool
) -> Iterator[np.ndarray]:
    """Yield the rows (D, L) for each call of the loop; −1 where a device has fewer rows."""
    turn = np.zeros(len(numbers), np.int64)  # the round in which a row is taken
    if rounds:
        order = np.argsort(numbers, kind="stable")
        first = np.r_[True, np.diff(numbers[order]) > 0]
        turn[order] = np.arange(len(numbers)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    for now in range(int(turn.max()) + 1):
        device_of = np.where(turn == now, numbers % devices, -1)
        taken = [np.flatnonzero(device_of == device) for device in range(devices)]
        lengths = compiled_lengths(max(map(len, taken)), call_cost)
        rows = np.full((devices, sum(lengths)), -1)
        for of_device, chosen in zip(rows, taken, strict=True):
            of_device[: len(chosen)] = chosen
        yield from np.split(rows, np.cumsum(lengths)[:-1], axis=1)


def pieces(numbers: np.ndarray, size: int) -> Iterator[slice]:
    """Cut rows so that the states of the streams in a piece, ``size`` bytes each, take little."""
    start, lengths = 0, [length for length in LENGTHS if length <= LARGEST // size] or [LENGTHS[0]]
    while start < len(numbers):
        rest = numbers[start:]
        fits = len(rest) * size <= LARGEST or len(np.unique(rest)) * size <= LARGEST
        stop = len(numbers) if fits else min(start + lengths[-1], len(numbers))
        yield slice(start, stop)
        start = stop


def compact(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the different numbers, of each row its place among them, and a row of each number."""
    if not len(numbers):
        return numbers, numbers, numbers
    low = int(numbers.min())
    span = int(numbers.max()) - low + 1
    if span > SPREAD * len(numbers):
        unique, firsts, positions = np.unique(numbers, return_index=True, return_inverse=True)
        return unique, positions, firsts
    # Without sorting: the last row of a number is the one that stays in the table.
    shifted, rows = numbers - low, np.arange(len(numbers), dtype=np.int32)
    table = np.empty(span, np.int32)
    table[shifted] = rows
    lasts = np.flatnonzero(table.take(shifted) == rows)
    table[shifted[lasts]] = np.arange(len(lasts), dtype=np.int32)
    return numbers[lasts], table.take(shifted), lasts


def shares(
    unique: np.ndarray, devices: int, size: int
) -> tuple[list[np.ndarray], np.ndarray | None, int]:
    """Return which streams each device has, their ranks there, and for how many it has room.

    A state has ``size`` bytes. With one device the ranks are None: they are the places.
    """
    if devices == 1:
        chosen, ranks = [np.arange(len(unique))], None
    else:
        chosen = [np.flatnonzero(unique % devices == device) for device in range(devices)]
        ranks = np.empty(len(unique), np.int64)
        for streams in chosen:
            ranks[streams] = np.arange(len(streams))
    most = max(map(len, chosen))
    room = next(length for length in LENGTHS if length >= most)
    if room * size > LARGEST // 4:  # large states: a program more, but less to copy
        room = max(LENGTHS[0], 1 << (most - 1).bit_length())
    return chosen, ranks, room


def halves(hashed: np.ndarray) -> np.ndarray:
    """Return hashes as two words each, (n, 2)."""
    low = np.uint64(2**32 - 1)
    return np.stack([hashed >> np.uint64(32), hashed & low], axis=-1).astype(np.uint32)


def laid(
    array: np.ndarray, rows: np.ndarray, is_row: np.ndarray, filler: float | np.ndarray
) -> np.ndarray:
    """Return an array as a call takes it, (D, L, …), with a filler where there is no row."""
    first = int(rows[0, 0])
    if len(rows) == 1 and is_row.all() and rows[0, -1] - first == rows.shape[1] - 1:
        return array[None, first : first + rows.shape[1]]  # rows ascend: this is all of them
    shaped = is_row.reshape(is_row.shape + (1,) * (array.ndim - 1))
    return np.where(shaped, array[rows], np.asarray(filler, array.dtype))


def no_targets(xs: ArrayLike) -> np.ndarray:
    return np.zeros(len(xs) if hasattr(xs, "__len__") else 0)  # type: ignore[arg-type]


def joined(calls: list[Called], n: int) -> Trace:
    """Return the trace of all rows in their order, as arrays of NumPy."""
    leaves, structure = jax.tree.flatten(calls[0][2])
    joined = [np.empty((n, *leaf.shape[2:]), leaf.dtype) for leaf in leaves]
    for rows, is_row, trace in calls:  # only now: to read a trace is to wait for its call
        for array, leaf in zip(joined, jax.tree.leaves(trace), strict=True):
            array[rows[is_row]] = np.asarray(leaf)[is_row]
    return structure.unflatten(joined)
