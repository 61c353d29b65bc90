"""Ray: two workers compute what one process computes, also after one of them was killed."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import jboost as jb
from jboost.fleets.shares import Share
from jboost.reports.accounts import Watch

pytest.importorskip("ray")


def test_a_worker_compiles_what_it_reports_once():
    share = Share({"model": jb.SGD(0.1), "num_features": 1}, None)
    pickled = [pickle.dumps(Watch(learners=n)) for n in (0, 0, 1)]
    first, again, other = (share._unpickled(each) for each in pickled)
    assert first is again and first is not other and share._unpickled(None) is None


def test_a_fleet_over_workers_has_the_bits_of_one_process():
    """In a process of its own, since Ray leaves threads and files behind."""
    root = Path(jb.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"}
    environment |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(root / "tests" / "support" / "ray_work.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "same bits"
