"""Layouts: one device or eight, one process or two, the same table; in processes of their own."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.sweeps import devices, jobs
from jboost.sweeps.sweep import sweep

WORK = Path(__file__).parents[1] / "support" / "sweep_work.py"


def start(*arguments, **environment):
    env = {**os.environ, "PYTHONPATH": str(WORK.parents[2]), **environment}
    command = [sys.executable, str(WORK), *map(str, arguments)]
    return subprocess.Popen(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finished(process):
    """What a process printed last, as JSON."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def alone():
    """The table and the fleet of this one process."""
    from support import sweep_work

    return json.loads(json.dumps(sweep_work.work()))


def assert_same(result, alone):
    assert result["settings"] == alone["settings"] and result["done"] == alone["done"]
    assert result["skipped"] == alone["skipped"]
    np.testing.assert_allclose(result["mse"], alone["mse"], rtol=1e-6)
    np.testing.assert_allclose(result["fleet"], alone["fleet"], rtol=1e-5, atol=1e-6)


def test_eight_devices_give_the_table_of_one(alone):
    result = finished(start("devices", JAX_NUM_CPU_DEVICES="8"))
    assert result["devices"] == 8
    assert result["parts"] == 8  # the batch and the fleet are really laid over all of them
    assert_same(result, alone)


def test_two_processes_give_the_table_of_one(alone):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    both = [start("process", number, f"localhost:{port}") for number in (0, 1)]
    try:
        tables = [finished(process) for process in both]
    finally:
        for process in both:
            process.kill()
    for number, result in enumerate(tables):
        assert (result["processes"], result["process"]) == (2, number)
        assert 0 < result["computed"] < len(alone["mse"])  # each did a part
        assert_same(result, alone)
    assert sum(result["computed"] for result in tables) == len(alone["mse"])


def test_batches_cover_every_run_once_in_equal_sizes():
    cases = [(1, 9, 2, 1), (7, 2, 2, 1), (1024, 70, 2, 1), (9, 4, 1, 8)]
    for count, most, concurrent, parts in cases:
        batches = jobs._cut(count, most, concurrent, parts)
        assert len({len(batch) for batch in batches}) == 1 and len(batches[0]) % parts == 0
        assert np.unique(np.concatenate(batches)).tolist() == list(range(count))
        assert len(batches[0]) <= max(most, parts)
        assert all(batch.min() not in other for batch in batches for other in batches
                   if other is not batch)  # fmt: skip


def test_a_thread_for_each_core_and_errors_that_help():
    resources = devices.resources()
    assert resources.workers == (devices.cores() if len(jax.devices()) == 1 else 1)
    with pytest.raises(ValueError, match="workers must be"):
        devices.resources(workers=0)
    with pytest.raises(TypeError, match="devices must be devices such as"):
        devices.resources(["cpu:0"])
    with pytest.raises(TypeError, match="devices must be devices such as"):
        sweep(jb.SGD, {"step_size": [0.1]}, np.ones((2, 1)), np.ones(2), devices=[])


def test_a_failure_in_a_thread_ends_the_work(monkeypatch):
    begun = []

    def fail(job, batch):
        begun.append(batch)
        time.sleep(0.05)
        raise ZeroDivisionError

    monkeypatch.setattr(jobs.Job, "compute", fail)
    steps = np.linspace(0.1, 0.5, 50)
    with pytest.raises(ZeroDivisionError):
        sweep(jb.SGD, {"step_size": steps}, np.ones((2, 1)), np.ones(2), batch=1, workers=1)
    assert 0 < len(begun) < len(steps)
