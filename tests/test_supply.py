"""What the library leans on: no network, known licences, and lower bounds that are tested."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jboost as jb

ROOT = Path(__file__).parent.parent

QUIET = """
import sys
seen = []
def note(event, args):
    if event.startswith(("socket.", "urllib.", "http.", "ftplib.", "smtplib.")):
        seen.append(event)
sys.addaudithook(note)
import socket
socket.socket(socket.AF_INET).close()
assert seen == ["socket.__new__"], seen  # what would be seen is seen
seen.clear()

import jax, numpy as np
import jboost as jb
from jboost.cli import main
xs, ds = (np.asarray(array) for array in jb.streams.duffing(64))
model = jb.bsgd_ru(3, target_mse=0.2, step_size=0.1)
jb.run_stream(model, (xs, ds), jax.random.key(0), checkpoint="run").finish()
jb.load("run")
np.savetxt("data.csv", np.column_stack([xs, ds]), delimiter=",", header="a,b,c,y", comments="")
main(["models"])
if len(sys.argv) > 1:
    assert main(["run", "data.csv", "--target", "y", "--model", "nlms", "--checkpoint", "c"]) == 0
assert not seen, seen
"""


def test_nothing_is_asked_of_the_network(tmp_path: Path) -> None:
    """Neither when it is imported nor when it runs, by Python's own account of every socket."""
    environment = os.environ | {"PYTHONPATH": str(Path(jb.__file__).parents[1])}
    files = ["files"] if importlib.util.find_spec("pyarrow") else []
    done = subprocess.run(
        [sys.executable, "-c", QUIET, *files],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture
def audit() -> Any:
    pytest.importorskip("packaging")
    return importlib.import_module("experiments.bench.audit")


def test_the_whole_tree_is_listed(audit: Any, capsys: Any) -> None:
    assert audit.main(["--offline"]) == audit.UNKNOWN == 3  # never a silent pass
    out = capsys.readouterr().out
    listed = {line.split()[0] for line in out.partition("\n\n")[0].splitlines()[1:]}
    assert listed >= {"jax", "jaxlib", "numpy", "optax", "scipy", "ml-dtypes"}
    assert "NOT LOOKED UP" in out and "licences to look at: none" in out
    assert "bounds not tested: none" in out


@pytest.mark.parametrize(
    ("licence", "accepted"),
    [
        ("Apache-2.0", True),
        ("BSD-3-Clause AND Zlib AND CC0-1.0", True),
        ("MIT AND GPL-3.0-only", False),
        ("LGPL-3.0", False),
        ("unknown", False),
        ("Proprietary, BSD License", False),
    ],
)
def test_a_licence_counts_with_all_its_parts(audit: Any, licence: str, accepted: bool) -> None:
    assert audit.Package("a", "1", licence, "", "").accepted == accepted


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"dependencies": [{"name": "jax", "version": "1", "vulns": []}]}, 0),
        (
            {
                "dependencies": [
                    {
                        "name": "jax",
                        "version": "1",
                        "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}],
                    }
                ]
            },
            1,
        ),
        ({"dependencies": [{"name": "jax", "version": "1", "skip_reason": "not found"}]}, 3),
        ({"dependencies": []}, 3),
        (None, 3),
    ],
)
def test_what_could_not_be_looked_up_does_not_pass(
    audit: Any, monkeypatch: Any, capsys: Any, answer: Any, status: int
) -> None:
    package = audit.Package("jax", "1", "MIT", ">=0.7.0", "0.7.0")
    monkeypatch.setattr(audit, "tree", lambda *_: [package])
    said = SimpleNamespace(stdout="no route to host" if answer is None else json.dumps(answer))
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: said)
    assert audit.main([]) == status
    assert ("jax 1: CVE-1, fixed in 2" in capsys.readouterr().out) == (status == 1)


def test_a_bound_that_is_not_tested_is_named(audit: Any) -> None:
    assert audit.untested([audit.Package("jax", "1", "MIT", "", "0.7.0")]) == []
    assert audit.untested([audit.Package("jax", "1", "MIT", "", "0.8.0")]) == [
        "jax>=0.7.0, tested from 0.8.0"
    ]


@pytest.mark.parametrize(
    ("last", "code", "verdict", "counts"),
    [
        ("12 passed, 3 skipped, 7 deselected in 4.20s", 0, "pass", (12, 0, 3)),
        ("1 failed, 11 passed, 2 errors in 4.20s", 1, "FAIL", (11, 3, 0)),
        ("ImportError while loading conftest", 4, "FAIL", (0, 1, 0)),
        ("no tests ran in 0.10s", 5, "FAIL", (0, 1, 0)),
    ],
)
def test_a_row_of_the_matrix_passes_only_if_tests_ran(
    monkeypatch: Any, last: str, code: int, verdict: str, counts: tuple[int, ...]
) -> None:
    versions = importlib.import_module("experiments.bench.versions")
    asked: list[Any] = []

    def run(command: list[str], **how: Any) -> Any:
        asked.append((command, how["env"]))
        return SimpleNamespace(stdout=f"....\n{last}\n", stderr="", returncode=code)

    monkeypatch.setattr(versions.subprocess, "run", run)
    switch = versions.SWITCHES["NaN is an error"]
    row = versions.pytest(Path("python"), "here", ["tests"], switch)
    assert (row.verdict, row[1:4]) == (verdict, counts) and row.ruled_out == len(switch.ruled_out)
    command, environment = asked[0]
    assert environment["JAX_DEBUG_NANS"] == "1" and command.count("--deselect") == 1


def test_what_is_ruled_out_exists_and_has_a_reason() -> None:
    versions = importlib.import_module("experiments.bench.versions")
    for switch in versions.SWITCHES.values():
        for test, reason in switch.ruled_out.items():
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text() and len(reason) > 20
