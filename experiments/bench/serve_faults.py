"""What ``jboost serve`` bears: kills, silent and slow clients, and requests that make no sense.

The server is killed with SIGKILL at random moments under load and started again. Afterwards each
answer that it acknowledged must be in its log once, and its state must be that of ``jb.run`` on the
rows of the log, bit for bit; so too where its files could not grow for a while. Then come clients
that say nothing, or never read; and mangled requests by the thousand, none of which may fail the
server, change its state or make it grow. All traffic stays on the loopback address, and is bounded
in number. A run that is cut goes on with the part that it was at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import socket
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jboost as jb
from experiments.bench.serve_clients import (
    HOST,
    NAMES,
    Connection,
    answer,
    batch,
    clients,
    question,
    rows,
    started,
)
from experiments.shared.experiment import Experiment, Progress
from jboost import catalogue

MODEL, CLIENTS = "bnm_wu", 16
LONG = ["--every", "1000000000"]  # the log keeps everything, so that it can be compared
SERVE = ["-m", "jboost", "serve", "--model", MODEL, "--target", "y", "--rate", "1000000"]
MOST_PAIRS = 3000  # between two kills
SILENT, SLOW = 10_000, 50
UNLIMITED = resource.RLIM_INFINITY


# -- kills


async def until_killed(port: int, turn: int, child: Any, moment: float) -> list[str]:
    """Send pairs while the server lives; the ids whose answers it acknowledged.

    It is killed ``moment`` after the first answers: the whole part counts answers, and the rest
    is a part of the time that a few of them take.
    """
    acknowledged: list[str] = []
    xs, ds = rows(MOST_PAIRS, seed=turn)

    async def work(number: int, connection: Connection) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            for i in range(number, MOST_PAIRS, CLIENTS):
                name = f"{turn}-{i}"
                status, _ = await connection.post("/predict", question(name, xs[i]))
                assert status == 200
                status, _ = await connection.post("/learn", answer(name, ds[i]))
                assert status == 200
                acknowledged.append(name)
                if i % 5 == 0:  # a client that is not sure
                    await connection.post("/learn", answer(name, 0.0))

    async def kill() -> None:
        while len(acknowledged) < int(moment):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02 * (moment % 1))
        child.kill()

    await asyncio.gather(kill(), clients(port, CLIENTS, work))
    child.wait()
    return acknowledged


def logged(folder: Path) -> list[tuple[dict[str, float], float, str]]:
    """What the log of a server that does not run holds, in its order."""
    with contextlib.closing(sqlite3.connect(folder / "log.sqlite")) as db:
        entries = db.execute("SELECT rows FROM log ORDER BY number").fetchall()
    return [(f, d, name) for (text,) in entries for f, d, name, _ in json.loads(text)]


def is_state_of(folder: Path, entries: list[tuple[dict[str, float], float, str]]) -> bool:
    """Whether the checkpoint of a server is, bit for bit, that of a run over the rows of a log."""
    state = jb.load(folder / f"{MODEL}.{MODEL}.run")[1]
    xs = np.array([[row[name] for name in NAMES] for row, _, _ in entries], np.float32)
    ds = np.array([d for _, d, _ in entries], np.float32)
    expected, _ = jb.run(catalogue.named(MODEL), xs, ds)
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def kills(count: int) -> dict[str, Any]:
    """Kill the server so often, and compare."""
    rng, acknowledged = random.Random(0), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        bar = Progress("kills", count)
        for turn in range(count):
            with started([*SERVE, *LONG], Path(folder)) as (port, child):
                moment = rng.uniform(1, 500)
                acknowledged += asyncio.run(until_killed(port, turn, child, moment))
            bar.add(1, f"{len(acknowledged):,} answers")
        found = logged(Path(folder))
        with started([*SERVE, *LONG], Path(folder)):
            pass  # it learns the log again, and ends in order, with a checkpoint
        same = is_state_of(Path(folder), found)
    names = [name for _, _, name in found]
    return {
        "kills": count,
        "acknowledged": len(acknowledged),
        "learned": len(names),
        "lost": len({*acknowledged} - {*names}),
        "twice": len(names) - len({*names}),
        "bit_for_bit": same,
    }


# -- a full disk


async def _until_refused(port: int, folder: Path, child: Any, count: int) -> dict[str, Any]:
    """Learn rows one by one while no file may grow beyond what it has, and afterwards."""
    xs, ds = rows(3 * count, seed=5)
    connection, learned, statuses = await Connection.to(port), 0, dict[int, int]()
    for i in range(3 * count):
        if i == count:
            largest = max(path.stat().st_size for path in folder.iterdir())
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (largest + 8192, UNLIMITED))
        if i == 2 * count:
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
        status, _ = await connection.post("/learn", batch(xs[i : i + 1], ds[i : i + 1])[1:-1])
        learned += status == 200
        statuses[status] = statuses.get(status, 0) + 1
        asked, _ = await connection.post("/predict", batch(xs[i : i + 1])[1:-1])
        assert asked == 200  # it needs no disk
    connection.close()
    return {"learned": learned, "refused": statuses.get(507, 0), "statuses": statuses}


def full_disk(count: int) -> dict[str, Any]:
    """Let the system refuse what the server writes, for a while; then kill it and compare."""
    with tempfile.TemporaryDirectory() as folder:
        with started([*SERVE, *LONG], Path(folder)) as (port, child):
            found = asyncio.run(_until_refused(port, Path(folder), child, count))
            child.kill()
            child.wait()
        entries = logged(Path(folder))
        with started([*SERVE, *LONG], Path(folder)):
            pass
        same = is_state_of(Path(folder), entries)
    return found | {"in_log": len(entries), "bit_for_bit": same}


# -- clients that do not behave


async def _latency(port: int, count: int) -> float:
    """The median seconds of a prediction by a new client."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        connection = await Connection.to(port)
        status, _ = await connection.post("/predict", batch(rows(1)[0])[1:-1])
        assert status == 200
        connection.close()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def crowd(silent: int, slow: int) -> dict[str, Any]:
    """Connect and say nothing, or ask and never read; others are served meanwhile."""
    with tempfile.TemporaryDirectory() as folder, started(SERVE, Path(folder)) as (port, child):
        asyncio.run(_latency(port, 5))
        before = asyncio.run(_latency(port, 50))
        held: list[socket.socket] = []
        for _ in range(slow):
            each = socket.create_connection((HOST, port))
            body = batch(rows(1000)[0])
            head = (
                b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            )
            each.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            held.append(each)
        for _ in range(silent):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection((HOST, port), timeout=5))
        during = asyncio.run(_latency(port, 50))
        memory = _memory(child.pid)
        for each in held:
            each.close()
        after = asyncio.run(_latency(port, 50))
        alive = child.poll() is None
    return {
        "silent": silent, "slow": slow, "connected": len(held), "alive": alive, "memory_mb": memory,
        "median_ms": {"before": 1e3 * before, "during": 1e3 * during, "after": 1e3 * after},
    }  # fmt: skip


def _memory(process: int) -> float:
    """Megabytes of memory that a process holds."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return float("nan")


# -- requests that make no sense

KINDS = ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream")
PIECES = (
    *(
        "null",
        "true",
        "-1",
        "1e999",
        "NaN",
        "Infinity",
        '"',
        "\\ud800",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
    ),
    *('"id"', '"features"', '"answer"', '"key"', '"time"', '"x0"', "\0", "é", "\u202e", "0" * 400),
    *("{}", "[]", '{"a":1}', '"\\u0000"', "1e-400", "9" * 30, '"__proto__"', "../../etc/passwd"),
)


def mangled(count: int, seed: int) -> Iterator[tuple[str, str, bytes]]:
    """Paths, media types and bodies, none of which can be carried out."""
    rng = random.Random(seed)
    for _ in range(count):
        path = rng.choice(("/predict", "/learn", "/models/x/learn", "/models/../learn"))
        kind = rng.choice(KINDS)
        match rng.randrange(4):
            case 0:
                body = rng.randbytes(rng.randrange(200))
            case 1:
                body = "".join(rng.choices(PIECES, k=rng.randrange(1, 20))).encode()
            case 2:
                value = rng.choice(("[1]", "{}", '"text"', "NaN", '"' + "x" * 2000 + '"'))
                body = f'{{"features": {{"u": {value}}}, "answer": 1}}'.encode()
            case _:
                name = rng.choice(("unknown", "", "U", "u ", "y"))
                body = json.dumps({"features": {name: 1.0}, "id": 5, "answer": 2.0}).encode()
        yield path, kind, b"!" + body if body.strip() in (b"", b"{}") else body


async def _send(port: int, requests: list[tuple[str, str, bytes]], counts: dict[int, int]) -> None:
    async def work(number: int, _: Connection) -> None:
        connection = await Connection.to(port)
        for path, kind, body in requests[number::CLIENTS]:
            status, reply = await connection.post(path, body, kind)
            assert b"Traceback" not in reply
            counts[status] = counts.get(status, 0) + 1
        connection.close()

    await clients(port, CLIENTS, work)


def nonsense(count: int) -> dict[str, Any]:
    """Send mangled requests; the statuses, and whether anything changed."""
    with tempfile.TemporaryDirectory() as folder, started(SERVE, Path(folder)) as (port, child):
        names = ("u", "v", "w")
        first = {"features": dict.fromkeys(names, 1.0), "answer": 1.0}
        probe = json.dumps({"features": dict.fromkeys(names, 0.5)}).encode()

        async def ask(path: str, body: bytes) -> bytes:
            connection = await Connection.to(port)
            status, reply = await connection.post(path, body)
            assert status == 200
            connection.close()
            return reply

        asyncio.run(ask("/learn", json.dumps(first).encode()))
        before, counts = asyncio.run(ask("/predict", probe)), dict[int, int]()
        memory, bar = [_memory(child.pid)], Progress("nonsense", 10)
        for turn in range(10):
            asyncio.run(_send(port, [*mangled(count // 10, seed=turn)], counts))
            memory.append(_memory(child.pid))
            bar.add(1, f"{sum(counts.values()):,} requests")
        after = asyncio.run(ask("/predict", probe))
    failed = sum(n for status, n in counts.items() if status >= 500)
    accepted = sum(n for status, n in counts.items() if status < 400)
    return {
        "requests": sum(counts.values()), "failed": failed, "accepted": accepted,
        "statuses": dict(sorted(counts.items())), "unchanged": before == after,
        "memory_mb": {"first": memory[1], "last": memory[-1]},
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    parts = {
        "full disk": lambda: full_disk(experiment.size(300, 60)),
        "crowd": lambda: crowd(experiment.size(SILENT, 200), experiment.size(SLOW, 5)),
        "nonsense": lambda: nonsense(experiment.size(100_000, 500)),
        "kills": lambda: kills(experiment.size(100, 2)),
    }
    run = experiment.kept(lambda name: parts[name](), [MODEL, CLIENTS, SILENT, SLOW])
    results = {name: run(name) for name in parts}
    for name, found in results.items():
        print(f"{name}: {found}")
    killed, sense, full = results["kills"], results["nonsense"], results["full disk"]
    assert full["refused"] and full["learned"] == full["in_log"] and full["bit_for_bit"]
    assert killed["lost"] == killed["twice"] == 0 and killed["bit_for_bit"]
    assert sense["failed"] == sense["accepted"] == 0 and sense["unchanged"]
    experiment.write({"model": MODEL, "clients": CLIENTS}, results)


if __name__ == "__main__":
    main()
