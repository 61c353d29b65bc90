"""A consumer of a message queue that learns every message exactly once.

The queue delivers batches at least once: it may repeat them, and change their order. Each message
has the number of its partition and its offset there. The position kept with the fleet says, for
each partition, which offset comes next. The guide is queues.md.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

import jboost as jb
from jboost.fleets.state import FleetState


class Message(NamedTuple):
    """A row on its way."""

    partition: int
    offset: int  # counts the messages of the partition from 0
    name: str  # of the stream; all messages of a name are in one partition
    x: Sequence[float]
    d: float


class Consumer:
    """Learns messages in the order of their offsets, and keeps the fleet every few batches."""

    def __init__(self, fleet: jb.Fleet, folder: str, every: int = 8) -> None:
        self.fleet, self.folder, self.every = fleet, folder, every
        self.state: FleetState = fleet.init()
        self.next: dict[int, int] = {}  # by partition, the offset of the next message to learn
        try:
            self.state = fleet.load(folder)
            self.next = {int(partition): n for partition, n in (self.state.position or {}).items()}
        except FileNotFoundError:
            pass  # the first start
        self._early: dict[tuple[int, int], Message] = {}  # came before the ones they follow
        self._batches = 0

    def take(self, batch: Iterable[Message], acknowledge: Callable[[dict[int, int]], None]) -> None:
        """Learn the messages of a batch whose turn it is; keep the others until it is theirs."""
        for message in batch:
            if message.offset >= self.next.get(message.partition, 0):  # else it was learned
                self._early[message.partition, message.offset] = message
        rows = [*self._due()]
        if rows:
            names, xs, ds = zip(*((m.name, m.x, m.d) for m in rows), strict=True)
            self.state = self.fleet.learn(self.state, names, np.array(xs), np.array(ds))
        self._batches += 1
        if self._batches % self.every == 0:
            self.keep(acknowledge)

    def keep(self, acknowledge: Callable[[dict[int, int]], None]) -> None:
        """Save the fleet with its position; only then may the queue forget the messages."""
        position = {str(partition): offset for partition, offset in self.next.items()}
        self.fleet.save(self.folder, self.state, position=position)
        acknowledge(dict(self.next))

    def _due(self) -> Iterator[Message]:
        for partition in sorted({partition for partition, _ in self._early}):
            offset = self.next.get(partition, 0)
            while (message := self._early.pop((partition, offset), None)) is not None:
                yield message
                offset += 1
            self.next[partition] = offset


class Queue:
    """A queue in this process that delivers at least once: it repeats and reorders batches."""

    def __init__(self, messages: Sequence[Message], batch: int, seed: int) -> None:
        self._batches = [messages[i : i + batch] for i in range(0, len(messages), batch)]
        self._random = random.Random(seed)
        self._acknowledged: dict[int, int] = {}

    def acknowledge(self, offsets: dict[int, int]) -> None:
        """Remember what need not be delivered again."""
        self._acknowledged = offsets

    def deliver(self) -> Iterator[Sequence[Message]]:
        """Yield the batches that are not acknowledged, some twice, each a little out of order."""
        due = [
            batch
            for batch in self._batches
            if any(m.offset >= self._acknowledged.get(m.partition, 0) for m in batch)
        ]
        places = [(i + self._random.uniform(0, 4), batch) for i, batch in enumerate(due)]
        places += [(i + self._random.uniform(0, 9), b) for i, b in enumerate(due) if i % 3 == 0]
        for _, batch in sorted(places, key=lambda pair: pair[0]):
            yield batch


def messages(rows: int, names: int, partitions: int) -> list[Message]:
    """Rows of many streams, in partitions."""
    rng, offsets, sent = np.random.default_rng(0), [0] * partitions, []
    for name, (a, b) in zip(
        rng.integers(0, names, rows).tolist(), rng.normal(size=(rows, 2)).tolist(), strict=True
    ):
        partition = name % partitions
        message = Message(partition, offsets[partition], f"sensor {name}", (a, b), a * name - b)
        sent.append(message)
        offsets[partition] += 1
    return sent


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="how many messages")
    parser.add_argument("--crashes", type=int, default=5, help="how often the consumer dies")
    args = parser.parse_args(argv)
    sent, model = messages(args.rows, 50, 3), jb.NLMS(0.1)
    queue, moments = Queue(sent, 64, seed=1), random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        consumer = Consumer(jb.Fleet(model, 2), folder)
        for crash in range(args.crashes + 1):
            consumer = Consumer(jb.Fleet(model, 2), folder)  # it starts again
            lives = moments.randint(10, 60) if crash < args.crashes else None
            for number, batch in enumerate(queue.deliver()):
                if number == lives:
                    break  # it dies here: what was not kept is lost, and will be delivered again
                consumer.take(batch, queue.acknowledge)
        consumer.keep(queue.acknowledge)
    whole = jb.Fleet(model, 2)
    order = sorted(sent, key=lambda m: (m.partition, m.offset))
    xs, ds = np.array([m.x for m in order]), np.array([m.d for m in order])
    expected = whole.learn(whole.init(), [m.name for m in order], xs, ds)
    names = whole.names(expected)
    same = np.array_equal(
        whole.states(expected, names).w, consumer.fleet.states(consumer.state, names).w
    )
    print(f"{args.rows:,} messages, {args.crashes} crashes: "
          f"{'every bit as in one run' if same else 'the states DIFFER'}")  # fmt: skip


if __name__ == "__main__":
    main()
