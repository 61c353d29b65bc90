"""The tables of the guide of deployment, from the record of keys.py."""

from __future__ import annotations

import math
from typing import Any

from experiments.shared.markdown import Record

KEYS = 10**8
ROWS_A_KEY = 24 * 60  # a day: one row a minute
MEMORY = 64e9  # bytes of memory of a machine in the plan
CORES = 16  # of a machine in the plan
FREE = 0.95  # of the time of a process that no other process keeps from its core
PASSES = ("first", "first_with_init", "later")  # what keys_numbered.py compares


def table(record: Record, beside: Record) -> str:
    """What was measured; ``beside`` is the record of keys_numbered.py."""
    names, ray, starts = (record["results"][title] for title in ("names", "ray", "starts"))
    first, later = names["rows_per_second"][0], names["rows_per_second"][-1]
    micro = names["cpu_microseconds_per_row"]
    megabytes = names["names"] * names["state_bytes"] / 1e6
    lines = [
        "| measured | |",
        "|---|---|",
        f"| {names['names']:,} names, each once in random order, `bsgd_wu` of 5, r = 4 | "
        f"{first:,.0f} rows a second ({micro[0]:.2f} µs of CPU a row) |",
        f"| the same names again | {later:,.0f} rows a second ({micro[-1]:.2f} µs of CPU a row) |",
        "| names beside the numbers 0 … N − 1, which need no directory and no growth, rows a "
        "second by CPU: first pass, with the making of the numbers' states, second pass | "
        + ", ".join(f"{beside['results'][title]:.2f}" for title in PASSES)
        + " |",
        f"| a state, a name | {names['state_bytes']:,} bytes, {names['name_bytes']:.0f} bytes |",
        f"| memory afterwards, at its peak (the states alone: {megabytes:.0f} MB) | "
        f"{names['memory_mb']:.0f} MB, {names['peak_mb']:.0f} MB |",
        f"| saved: all, after a change of one stream | {names['save_seconds']:.1f} s, "
        f"{names['save_one_change_seconds']:.2f} s; {names['files']} files, "
        f"{names['folder_bytes_per_name']:.0f} bytes a key |",
        f"| loaded | {names['load_seconds']:.1f} s |",
    ]
    for name, figures in ray.items():
        ratios = []
        for measure in ("wall", "busiest"):
            single, double, here = (
                figures["seconds"][who][measure] for who in ("1 workers", "2 workers", "in process")
            )
            gain, cost = single / double, single / here
            ratios.append(f"{gain:.2f} times as fast, {cost:.2f} times the time")
        lines.append(
            f"| {name}, r = {figures['r']}, {figures['rows']:,} rows in blocks of 65,536: "
            f"two workers against one, one worker against this process | "
            f"by the clock {ratios[0]}; by the CPU of the busiest process {ratios[1]} |"
        )
    for name, figures in starts.items():
        lines.append(
            f"| {name}, the first 20 rows of new streams (Beijing's air, a stream per hour and "
            f"month), MSE: from nothing, from the average of other streams | "
            f"{figures['fresh']['first']:.3f}, {figures['average']['first']:.3f} |"
        )
    alone = ray["BNM-WU"]["seconds"]["in process"]
    share = min(alone["busiest"] / alone["wall"], 1)
    free = "are" if share > FREE else "are longer than"
    busy = f"The machine has {record['settings']['cores']} cores. The one process, without Ray, "
    busy += f"computed {share:.0%} of the time: times by the clock {free} those of free cores."
    return "\n".join([*lines, "", busy])


def kills(run: Record, workers: Record) -> str:
    """How often runs and workers were killed; ``run`` and ``workers`` are the records of that."""
    of_run, of_workers = run["settings"], workers["settings"]
    return (
        f"Recorded: `jboost run --key` over {of_run['rows']:,} rows of {of_run['keys']:,} keys, "
        f"killed {run['results']['kills']} times; two workers over {of_workers['rows']:,} rows of "
        f"{of_workers['keys']:,} keys, killed {workers['results']['kills']} times. Every "
        "prediction and every state was that of the uninterrupted run, bit for bit."
    )


def plan(record: Record) -> str:
    """What 10⁸ keys would take, by proportion."""
    names: dict[str, Any] = record["results"]["names"]
    memory = KEYS * (names["state_bytes"] + names["name_bytes"])
    machines = math.ceil(memory / (0.5 * MEMORY))  # half: a block, an old state and growth
    rate = 1e6 / names["cpu_microseconds_per_row"][-1]
    rows = KEYS * ROWS_A_KEY / 86_400
    cores = math.ceil(rows / rate)
    machines = max(machines, math.ceil(cores / CORES))
    workers = max(cores, machines)
    share = KEYS / workers
    scale = share / names["names"]
    lines = [
        "| 10⁸ keys, a row a minute each | |",
        "|---|---|",
        f"| memory for states and names | {memory / 1e9:,.0f} GB |",
        f"| rows a second; cores at {rate:,.0f} rows a second | {rows:,.0f}; {cores:,} |",
        f"| machines of {MEMORY / 1e9:.0f} GB, half full, and {CORES} cores | {machines:,} |",
        f"| keys of each of {workers:,} workers | {share:,.0f} |",
        f"| folder, shards of 8 MB | {KEYS * names['folder_bytes_per_name'] / 1e9:,.0f} GB, "
        f"{KEYS * names['folder_bytes_per_name'] / 8e6:,.0f} files; twice that with Ray |",
        f"| a checkpoint of everything | {scale * names['save_seconds']:.1f} s a worker |",
        f"| recovery of a worker: loading | {scale * names['load_seconds']:.1f} s, then the blocks "
        "since the last save |",
    ]
    return "\n".join(lines)
