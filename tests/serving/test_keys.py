"""A model for each key: the bits of a fleet, and what is counted for each."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.serving import Local, features, over_http, same_bits, service_of, stream

from jboost import catalogue
from jboost.cli import main
from jboost.fleets.fleet import Fleet
from jboost.serving import keyed
from jboost.serving.keys import KeyErrors
from jboost.serving.refusal import Refusal
from jboost.serving.rows import Row

pytest.importorskip("pyarrow")
MODEL = "nlms"


def row(i: int, xs: Any, key: str) -> dict[str, Any]:
    return features(xs[i]) | {"shop": key}


def fleet_of(keys: Any, xs: Any, ds: Any) -> tuple[Fleet, Any, Any]:
    """What ``jb.Fleet`` gives for rows, with the model as the server makes it."""
    fleet = Fleet(catalogue.named(MODEL), 3)
    return fleet, *fleet.run(fleet.init(), list(keys), xs, ds)


def test_a_model_for_each_key_has_the_bits_of_a_fleet(tmp_path: Path) -> None:
    xs, ds = stream(60)
    keys = np.random.default_rng(1).choice(["a", "b", "ü"], 60).tolist()
    local, predictions = Local(tmp_path, MODEL, key="shop", every=25), []
    for i in range(60):
        local.ask(None, row(i, xs, f"never learned {i}"))
        predictions.append(local.ask(str(i), row(i, xs, keys[i]))["prediction"])
        assert local.answer(str(i), float(ds[i])) == {"learned": True}
        assert local.answer(str(i), 5.0) == {"learned": True}
        if i in (10, 40):
            local.crash()
            local = Local(tmp_path, every=25)
        if i == 20:
            local.stop()
            local = Local(tmp_path, every=25)
    fleet, state, trace = fleet_of(keys, xs, ds)
    served = local.stream.now.leading
    assert served.fleet is not None and served.fleet.names(served.state) == fleet.names(state)
    assert same_bits(served.fleet.states(served.state), fleet.states(state))
    # A fleet's predictions alone may round otherwise than those that it learns from.
    np.testing.assert_allclose(predictions, trace.prediction, rtol=1e-6, atol=1e-6)
    errors = np.square(np.float64(trace.prediction) - ds)
    found = local.stream.errors.search("")
    assert found["all"] == found["found"] == 3
    for each in found["keys"]:
        of_key = errors[np.array(keys) == each["key"]]
        assert each["answers"] == len(of_key) and each["mse"] == pytest.approx(of_key.mean())
    assert [k["key"] for k in local.stream.errors.search("Ü")["keys"]] == ["ü"]
    local.stop()


def test_a_kept_run_with_keys_can_be_gone_on_with(tmp_path: Path, capsys: Any) -> None:
    xs, ds = stream(90)
    keys = np.random.default_rng(2).choice(["a", "b", "ü"], 90).tolist()
    lines = [f"{k},{','.join(map(repr, x))},{d!r}"
             for k, x, d in zip(keys, xs.tolist(), ds.tolist(), strict=True)]  # fmt: skip
    (tmp_path / "shops.csv").write_text("\n".join(["shop,u,v,w,y", *lines[:60]]) + "\n")
    named = ["run", str(tmp_path / "shops.csv"), "--target", "y", "--key", "shop"]
    assert main([*named, "--model", MODEL, "--checkpoint", str(tmp_path / "shops")]) == 0
    member, account, asked, sums = keyed.from_keyed_run(tmp_path / "shops")
    counts = {key: count for key, (count, _) in sums.items()}
    assert counts == {key: keys[:60].count(key) for key in "abü"} and member.seen == 60
    local = Local(tmp_path / "state", start=("shops", "y", member, account, {"anew": asked}, sums))
    for i in range(60, 90):
        local.answer(None, float(ds[i]), row(i, xs, keys[i]))
        if i == 70:
            local.crash()
            local = Local(tmp_path / "state")
    _, state, trace = fleet_of(keys, xs, ds)
    local.stop()
    local = Local(tmp_path / "state")
    served = local.stream.now.leading
    assert served.fleet is not None and served.seen == 90
    assert same_bits(served.fleet.states(served.state), fleet_of(keys, xs, ds)[0].states(state))
    errors = np.square(np.float64(trace.prediction) - ds)[[k == "a" for k in keys]]
    assert local.stream.errors.sums["a"] == (keys.count("a"), pytest.approx(errors.sum()))
    local.stop()
    # A folder that is no such run is refused with a sentence.
    (tmp_path / "empty").mkdir()
    state_folder = str(tmp_path / "other")
    assert main(["serve", str(tmp_path / "empty"), "--state", state_folder, "--port", "0"]) != 0
    assert "a folder without a run of jboost run --key" in capsys.readouterr().err


def test_a_transaction_that_fails_leaves_the_fleet_as_it_was(
    tmp_path: Path, monkeypatch: Any
) -> None:
    xs, ds = stream(6)
    local = Local(tmp_path, MODEL, key="shop")
    local.answer(None, float(ds[0]), row(0, xs, "a"))
    append = local.service.log.append

    def fail(*arguments: Any) -> None:
        append(*arguments)
        raise sqlite3.OperationalError("database or disk is full")

    ask = local.service.log.ask
    monkeypatch.setattr(local.service.log, "ask", lambda *_: fail("newton", (0, 0, "")))
    with pytest.raises(Refusal, match="nothing was changed"):
        local.ask("q", row(1, xs, "b"))
    monkeypatch.setattr(local.service.log, "ask", ask)
    with monkeypatch.context() as context:
        step = local.stream.step

        def learn_and_fail(*arguments: Any) -> None:
            step(*arguments)
            raise sqlite3.OperationalError("database or disk is full")

        context.setattr(local.stream, "step", learn_and_fail)
        for i in (2, 3):
            with pytest.raises(Refusal, match="nothing was changed"):
                local.answer(None, float(ds[i]), row(i, xs, f"new {i}"))
    for i in (4, 5):
        local.answer(None, float(ds[i]), row(i, xs, "a"))
    chosen = [0, 4, 5]
    fleet, state, _ = fleet_of("aaa", xs[chosen], ds[chosen])
    served = local.stream.now.leading
    assert served.fleet is not None and served.fleet.names(served.state) == ["a"]
    assert same_bits(served.fleet.states(served.state), fleet.states(state))
    local.stop()


def test_keys_are_bounded(tmp_path: Path) -> None:
    xs, ds = stream(3)
    local = Local(tmp_path, MODEL, key="shop", most_keys=2)
    for i, key in enumerate("ab"):
        local.answer(None, float(ds[i]), row(i, xs, key))
    with pytest.raises(Refusal, match="there are 2 keys, and no more are taken"):
        local.do([Row(row(2, xs, key), None, 1.0) for key in "ac"], learn=True)
    assert local.answer(None, float(ds[2]), row(2, xs, "a")) == {"learned": True}
    assert local.ask(None, row(2, xs, "c"))["prediction"] is not None
    local.stop()


def test_the_largest_errors_are_found() -> None:
    errors = KeyErrors({f"key {i}": (2, float(i)) for i in range(100)})
    found = errors.search("")
    assert len(found["keys"]) == 20 and found["keys"][0] == {
        "key": "key 99",
        "answers": 2,
        "mse": 49.5,
    }
    assert errors.search("KEY 7")["found"] == 11


def test_keys_come_over_http(tmp_path: Path) -> None:
    for package in ("starlette", "httpx"):
        pytest.importorskip(package)
    from jboost.serving import web
    from jboost.serving.guard import Rules

    xs, _ = stream(1)
    application = web.Web(service_of(tmp_path, MODEL, None, "shop"), Rules())
    with over_http(application) as client:
        asked = {"id": "q", "key": "north", "features": features(xs[0])}
        assert client.post("/predict", json=asked).status_code == 200
        assert client.post("/learn", json={"id": "q", "answer": 2.0}).json() == {"learned": True}
        at_once = {"key": 7, "features": features(xs[0]), "answer": 1.0}
        assert client.post("/learn", json=at_once).json() == {"learned": True}
        found = client.get("/models/nlms/keys", params={"search": "nor"}).json()
        assert found["all"] == 2 and [key["key"] for key in found["keys"]] == ["north"]
        assert client.get("/models/nlms").json()["keys"] == 2
        for body, words in (
            ({"features": features(xs[0])}, "the key must be given once"),
            (asked | {"features": features(xs[0]) | {"shop": "x"}}, "it is twice"),
            (asked | {"key": [1]}, "a key must be a text"),
        ):
            reply = client.post("/predict", json=body)
            assert reply.status_code == 422 and words in reply.json()["error"]
