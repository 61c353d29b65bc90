"""``jboost serve`` as a process: killed, ended in order, shadowed, and refused."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("starlette")
pytest.importorskip("httpx")
import httpx
from support.serving import Process, features, logged, run_of, same_bits, serving, stream

import jboost as jb
from jboost.cli import main

ANEW = ("--model", "nlms", "--target", "y")
CLIENTS = 4


def load(address: str, begin: int, acknowledged: list[tuple[str, float]], until: Any) -> None:
    """Ask and answer rows until the server is gone; note the answers that it acknowledged."""
    xs, ds = stream(400, seed=begin)
    with httpx.Client(base_url=address, timeout=30) as client:
        for i in itertools.count():
            name, row = f"{begin}-{i}", i % len(ds)
            if until.is_set():
                return
            try:
                asked = {"id": name, "features": features(xs[row])}
                assert client.post("/predict", json=asked).status_code == 200
                reply = client.post("/learn", json={"id": name, "answer": float(ds[row])})
                if i % 3 == 0:  # a client that repeats itself
                    client.post("/learn", json={"id": name, "answer": 0.0})
            except httpx.HTTPError:
                return
            assert reply.json() == {"learned": True}
            acknowledged.append((name, float(ds[row])))


def test_what_was_acknowledged_is_there_once_after_kill_9(tmp_path: Path) -> None:
    """Killed at random moments under load; then the bits of a run over the rows of the log."""
    rng, acknowledged = random.Random(0), list[tuple[str, float]]()
    for attempt in range(2):
        with serving(tmp_path, *ANEW, "--every", "1000000") as server:
            until = threading.Event()
            threads = [
                threading.Thread(
                    target=load, args=(server.address, 10 * attempt + i, acknowledged, until)
                )
                for i in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            before, moment = len(acknowledged), rng.randrange(5, 150)
            while len(acknowledged) < before + moment:
                time.sleep(0.001)
            server.kill()
            until.set()
            for thread in threads:
                thread.join()
    rows = logged(tmp_path)
    answers = {name: answer for _, answer, name in rows}
    assert len(answers) == len(rows)  # each once
    assert acknowledged and {*acknowledged} <= {*answers.items()}
    with serving(tmp_path, *ANEW) as server:
        (model,) = httpx.get(f"{server.address}/models").json()["models"]
        assert model["answers"] == len(rows)
        assert server.stop() == 0
    xs = [[row[name] for name in "uvw"] for row, _, _ in rows]
    state, _ = run_of("nlms", xs, [answer for _, answer, _ in rows])
    assert same_bits(jb.load(tmp_path / "nlms.nlms.run")[1], state)


def test_sigterm_under_load_ends_in_order(tmp_path: Path) -> None:
    """Open questions stay open, and an answer is known to be learned, whenever it was."""
    acknowledged, until = list[tuple[str, float]](), threading.Event()
    with serving(tmp_path, *ANEW) as server:
        asked = {"id": "open", "features": features(stream(1)[0][0])}
        assert httpx.post(f"{server.address}/predict", json=asked).status_code == 200
        threads = [
            threading.Thread(target=load, args=(server.address, i, acknowledged, until))
            for i in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 50:
            time.sleep(0.001)
        assert server.stop() == 0
        until.set()
        for thread in threads:
            thread.join()
    with contextlib.closing(sqlite3.connect(tmp_path / "log.sqlite")) as db:
        learned = {name for (name,) in db.execute("SELECT id FROM answered")}
    assert {name for name, _ in acknowledged} <= learned
    with serving(tmp_path, *ANEW) as server:
        for name in (acknowledged[0][0], "open", "open"):
            reply = httpx.post(f"{server.address}/learn", json={"id": name, "answer": 1.0})
            assert reply.json() == {"learned": True}
        (model,) = httpx.get(f"{server.address}/models").json()["models"]
        assert model["answers"] == len(learned) + 1


@pytest.fixture
def run_files(tmp_path: Path, monkeypatch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Kept runs of two models over the first rows of a stream."""
    xs, ds = stream(120)
    monkeypatch.chdir(tmp_path)
    table = np.column_stack([xs[:60], ds[:60]]).astype(np.float64)
    np.savetxt("data.csv", table, "%.17g", ",", header="u,v,w,y", comments="")
    for model, name in (("nlms", "old.run"), ("sgd", "new.run")):
        command = ["run", "data.csv", "--target", "y", "--model", model, "--checkpoint", name]
        assert main(command) == 0
    return xs, ds


def test_a_run_goes_on_with_a_shadow_that_is_promoted_and_drops_the_old_model(
    run_files: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: Any
) -> None:
    xs, ds = run_files
    command = ("old.run", "--shadow", "new.run")

    def learn(server: Process, rows: range) -> None:
        body = [{"features": features(xs[i]), "answer": float(ds[i])} for i in rows]
        assert httpx.post(f"{server.address}/learn", json=body).status_code == 200

    with serving(Path("state"), *command) as server:
        learn(server, range(60, 80))
        (model,) = httpx.get(f"{server.address}/models").json()["models"]
        assert model["name"] == "old" and model["rows"] == 80 and model["answers"] == 20
        assert [shadow["label"] for shadow in model["shadows"]] == ["new"]
        server.kill()
    with serving(Path("state"), *command) as server:
        learn(server, range(80, 100))
        row = {"features": features(xs[0])}
        before = httpx.post(f"{server.address}/predict", json=row).json()
        reply = httpx.post(f"{server.address}/models/old/promote")
        assert reply.json() == {"leader": "new"}
        after = httpx.post(f"{server.address}/models/old/predict", json=row).json()
        assert before != after
        server.kill()
    with serving(Path("state")) as server:
        (model,) = httpx.get(f"{server.address}/models").json()["models"]
        assert model["leader"] == "new" and model["model"] == "sgd" and model["rows"] == 100
        assert httpx.post(f"{server.address}/predict", json=row).json() == after
        learn(server, range(100, 120))
        assert server.stop() == 0
    with serving(Path("state"), *command) as server:
        reply = httpx.post(f"{server.address}/models/old/drop", json={"shadow": "old"})
        assert reply.json() == {"dropped": "old"}
        assert httpx.post(f"{server.address}/models/old/drop").status_code == 409
        server.kill()
    with serving(Path("state"), *command) as server:
        assert any("old was dropped, and stays so" in line for line in server.lines)
        (model,) = httpx.get(f"{server.address}/models").json()["models"]
        assert model["leader"] == "new" and model["shadows"] == [] and model["rows"] == 120
    for label, name in (("old", "nlms"), ("new", "sgd")):
        file = Path("state") / f"old.{label}.run"
        assert same_bits(jb.load(file)[1], run_of(name, xs, ds)[0])
        assert main(["inspect", str(file)]) == 0
        assert "rows seen   120" in capsys.readouterr().out
    assert main(["predict", "state/old.new.run", "data.csv"]) == 0
    with serving(Path("both"), "old.run", "new.run") as server:
        row = {"features": features(xs[0])}
        reply = httpx.post(f"{server.address}/predict", json=row)
        assert reply.status_code == 404 and "use /models/NAME" in reply.json()["error"]
        names = [m["name"] for m in httpx.get(f"{server.address}/models").json()["models"]]
        assert names == ["old", "new"]
        messages = [httpx.post(f"{server.address}/models/{n}/predict", json=row) for n in names]
        assert messages[0].json() != messages[1].json()
    Path("new.run").write_bytes(Path("old.run").read_bytes())
    assert main(["serve", *command, "--state", "state", "--port", "0"]) == 2
    assert "goes on from another new.run" in capsys.readouterr().err


def test_silent_connections_give_way(tmp_path: Path, monkeypatch: Any) -> None:
    """Clients that say nothing, or do not read, keep nobody out."""
    with serving(tmp_path, *ANEW) as server:
        host, port = server.address.removeprefix("http://").split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(200)]
        slow = socket.create_connection((host, int(port)))
        slow.send(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        body = {"id": "a", "features": {"u": 1.0}}
        assert httpx.post(f"{server.address}/predict", json=body).status_code == 200
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 30  # nobody who watches can hold it up
        for connection in (*silent, slow):
            connection.close()
    assert server.lines[-1].startswith("jboost: stopped; go on with the same command")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "holds no model yet: name a MODEL.run, or pass --target COL"),
        (["--model", "nlms"], "--target is missing"),
        (["--model", "nmls", "--target", "y"], "did you mean 'nlms'"),
        ([*ANEW, "--host", "0.0.0.0"], "requests must carry a token: set JBOOST_TOKEN"),
        ([*ANEW, "--token-file", "short"], "at least 16 ASCII characters"),
        ([*ANEW, "--token-file", "absent"], "absent cannot be read"),
        (["absent.run"], "absent.run cannot be read"),
        (["short"], "short is no jboost checkpoint"),
        (["a b.run"], "rename the file"),
        ([*ANEW, "--shadow", "other=short"], "there is no model 'other'"),
        ([*ANEW, "--set", "step=1"], "nlms has no setting 'step'"),
        ([*ANEW, "--host", "203.0.113.1"], "token"),
        ([*ANEW, "--key", "k", "--intervals", "0.9"], "--key goes with no --intervals"),
        (["short", "--key", "k"], "--key is for models that learn from nothing"),
    ],
)
def test_a_wrong_command_gets_a_sentence(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("short\n")
    assert main(["serve", *arguments, "--state", "state", "--port", "0"]) in (1, 2)
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_a_folder_of_other_settings_is_refused(tmp_path: Path, capsys: Any) -> None:
    with serving(tmp_path / "state", *ANEW):
        pass
    with serving(tmp_path / "state") as server:  # ended before it could begin
        assert server.stop() == 0
    for more in (["--set", "step_size=0.5"], ["--intervals", "0.9"]):
        command = ["serve", *ANEW, *more, "--state", str(tmp_path / "state"), "--port", "0"]
        assert main(command) == 2
        assert "with another target or other settings" in capsys.readouterr().err
