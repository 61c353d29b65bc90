"""A fleet of names against one whose streams are the numbers 0 … N − 1, by the CPU time of a row.

A fleet of numbers needs no directory and no growth: it has the states of all streams in one array
from the start, and the number of a row is the place of its state. It is what keys are measured
against. The two run the same rows in turns, in one process: every name once in random order, into
memory that is new, then once more. The time in which the array of the numbers is made is counted
apart, for names it is part of the first pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost as jb
from experiments.bench.keys import BLOCK, BSGD
from experiments.shared.experiment import Experiment
from jboost.fleets import loops
from jboost.fleets.blocks import calls
from jboost.fleets.program import Program

R = 4
Block = tuple[np.ndarray, np.ndarray, np.ndarray]  # names or numbers, xs, ds


class Numbers:
    """A fleet whose streams are 0 … N − 1: the loops of :class:`jb.Fleet`, and nothing else."""

    def __init__(self, streams: int) -> None:
        devices = (jax.local_devices()[0],)
        self.streams = streams
        self.program = Program(BSGD, R, np.dtype(np.float32), None, None, devices, "rows")

    def init(self) -> jax.Array:
        first = self.program.first_words(np.zeros(1, np.uint64))
        shape = (1, self.streams + 1, self.program.width)
        return jax.jit(lambda first: jnp.broadcast_to(first, shape))(first).block_until_ready()

    def run(self, words: jax.Array, *block: np.ndarray) -> tuple[jax.Array, np.ndarray]:
        numbers, xs, ds = block
        prediction, spec = np.empty(len(numbers), np.float32), self.program.spec
        for rows in calls(numbers, 1, 1000, rounds=False):
            is_row = rows >= 0
            call = (
                np.where(is_row, numbers[rows], self.streams).astype(np.int32),
                np.where(is_row[..., None], xs[rows], 0),
                np.where(is_row, ds[rows], np.nan).astype(np.float32),
                None,
            )
            words, trace = loops.RUN[spec.loop](spec, BSGD, None, words, call)[0]
            prediction[rows[is_row]] = np.asarray(trace.prediction)[is_row]
        return words, prediction


def spent(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the seconds of CPU that it took."""
    start = time.process_time()
    return work(), time.process_time() - start


def passes(fleet: Any, names: np.ndarray, rows: Block) -> tuple[list[float], list[np.ndarray]]:
    """The seconds of CPU of ``init`` and of each pass over all rows, and the predictions."""
    state, begun = spent(fleet.init)
    seconds, predictions = [begun], []
    for order in rows[0]:
        total = 0.0
        for start in range(0, len(order), BLOCK):
            chosen = order[start : start + BLOCK]
            block = names[chosen], rows[1][chosen], rows[2][chosen]

            def run(state: Any = state, block: Block = block) -> Any:
                after, trace = fleet.run(state, *block)
                return after, np.asarray(getattr(trace, "prediction", trace))

            (state, prediction), took = spent(run)
            total += took
            predictions.append(prediction)
        seconds.append(total)
    return seconds, predictions


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    count, rounds = experiment.size(1_000_000, 5_000), experiment.size(5, 1)
    rng = np.random.default_rng(0)
    numbers = np.arange(count)
    texts = np.array([f"sensor-{i:07d}" for i in range(count)])
    xs = rng.normal(size=(count, R)).astype(np.float32)
    ds = rng.normal(size=count).astype(np.float32)
    rows: Any = (np.stack([rng.permutation(count) for _ in range(2)]), xs, ds)
    fleets = {"numbers": (Numbers(count), numbers), "names": (jb.Fleet(BSGD, R), texts)}
    few = min(count, BLOCK + count % BLOCK)
    for fleet, names in fleets.values():  # compiles
        passes(fleet, names, (np.arange(few)[None], xs, ds))
    results: dict[str, Any] = {name: [] for name in fleets}
    for number in range(rounds):
        predictions = {}
        for name, (fleet, names) in fleets.items():
            seconds, predictions[name] = passes(fleet, names, rows)
            results[name].append([1e6 * s / count for s in seconds])
        pairs = zip(*predictions.values(), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs), "the predictions differ"
        plain, named = (results[name][-1] for name in fleets)
        shown = ", ".join(f"{a:.2f} {b:.2f}" for a, b in zip(plain, named, strict=True))
        print(f"round {number + 1}: init, first, second pass, µs a row, numbers names: {shown}")
    plain, named = (np.array(results[name]) for name in fleets)
    results["first"] = float(np.median(plain[:, 1] / named[:, 1]))
    results["first_with_init"] = float(np.median(plain[:, :2].sum(1) / named[:, :2].sum(1)))
    results["later"] = float(np.median(plain[:, 2] / named[:, 2]))
    for title in ("first", "first_with_init", "later"):
        print(f"{title}: names run at {results[title]:.2f} of the rows a second of numbers")
    experiment.write({"block": BLOCK, "names": count, "rounds": rounds}, results)


if __name__ == "__main__":
    main()
