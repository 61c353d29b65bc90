"""Fleets in folders: all or nothing, checked, and written only where something changed."""

import os
import shutil

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.fleets import shards, state
from jboost.fleets.shards import MANIFEST

R = 2
MODEL = jb.SGD(0.1)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """Shards of four streams."""
    monkeypatch.setattr(state, "SHARD_BYTES", 4 * 4 * R)


def rows(names, seed=0):
    rng = np.random.default_rng(seed)
    return names, rng.normal(size=(len(names), R)), rng.normal(size=len(names))


def files(folder):
    return sorted(
        name for name in os.listdir(folder) if name.endswith((".npz", ".tmp")) and name != MANIFEST
    )


def test_a_state_returns_with_its_position(tmp_path):
    names = [*range(10), "text", b"bytes", ("a", 1), "long" * 100]
    fleet = jb.Fleet(MODEL, R)
    kept, _ = fleet.run(fleet.init(), *rows(names))
    fleet.save(tmp_path / "f", kept, position={"offset": [3, 14]})
    other = jb.Fleet(MODEL, R)
    loaded = other.load(tmp_path / "f")
    assert other.names(loaded) == names and loaded.rows == 14
    assert loaded.position == {"offset": [3, 14]} and len(files(tmp_path / "f")) == 4
    np.testing.assert_array_equal(loaded.words, kept.words)
    left, right = (f.run(s, *rows(names, 1)) for f, s in ((fleet, kept), (other, loaded)))
    np.testing.assert_array_equal(left[0].words, right[0].words)
    np.testing.assert_array_equal(left[1].prediction, right[1].prediction)


def test_only_shards_that_changed_are_written(tmp_path):
    fleet = jb.Fleet(MODEL, R)
    first, _ = fleet.run(fleet.init(), *rows(range(12)))
    fleet.save(tmp_path, first)
    before = files(tmp_path)
    second, _ = fleet.run(first, *rows([5, 20]))
    fleet.save(tmp_path, second)
    after = files(tmp_path)
    assert len({*before} & {*after}) == 2 and len(after) == 4
    fresh = jb.Fleet(MODEL, R)
    third, _ = fresh.run(fresh.load(tmp_path), *rows([0]))
    fresh.save(tmp_path, third)
    current = files(tmp_path)
    assert len({*after} & {*current}) == 3
    fleet.save(tmp_path, first)  # another fleet wrote there meanwhile, so all is written
    assert not {*files(tmp_path)} & {*current}
    np.testing.assert_array_equal(fleet.load(tmp_path).words, first.words)


@pytest.mark.parametrize("bound", [1, 6])
def test_a_bound_does_not_show_in_the_folder(bound, tmp_path):
    fleet, small = jb.Fleet(MODEL, R), jb.Fleet(MODEL, R, bound=bound, spill=tmp_path)
    whole, _ = fleet.run(fleet.init(), *rows([*range(12), 3, 3]))
    bounded, _ = small.run(small.init(), *rows([*range(12), 3, 3]))
    small.save(tmp_path / "f", bounded)
    np.testing.assert_array_equal(fleet.load(tmp_path / "f").words, whole.words)
    np.testing.assert_array_equal(small.load(tmp_path / "f").words, whole.words)


@pytest.mark.parametrize("step", range(6))
def test_whenever_the_writer_dies_the_old_or_the_new_state_is_there(step, tmp_path, monkeypatch):
    fleet = jb.Fleet(MODEL, R)
    old, _ = fleet.run(fleet.init(), *rows(range(12)))
    fleet.save(tmp_path, old, position=1)
    new, _ = fleet.run(old, *rows(range(14)))
    calls = []

    def dying(f):
        def call(*arguments, **named):
            calls.append(1)
            if len(calls) > step:
                raise SystemExit
            return f(*arguments, **named)

        return call

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(os, "replace", dying(os.replace))
        patch.setattr(shards, "_remove_others", dying(shards._remove_others))
        fleet.save(tmp_path, new, position=2)
    fresh = jb.Fleet(MODEL, R)
    found = fresh.load(tmp_path)
    expected = {1: old, 2: new}[found.position]
    np.testing.assert_array_equal(found.words, expected.words)
    fresh.save(tmp_path, found)
    fresh.save(tmp_path, fresh.run(found, *rows(range(12)))[0])
    assert len(files(tmp_path)) == len(expected.marks)  # nothing is left behind


def test_damage_is_told(tmp_path):
    fleet = jb.Fleet(MODEL, R)
    kept, _ = fleet.run(fleet.init(), *rows(range(8)))
    fleet.save(tmp_path / "f", kept)
    later, _ = fleet.run(kept, *rows(range(8)))
    fleet.save(tmp_path / "g", later)
    _, second = files(tmp_path / "f")
    with pytest.raises(jb.CheckpointError, match="is of another fleet: num_features is 2"):
        jb.Fleet(MODEL, 3).load(tmp_path / "f")
    with pytest.raises(jb.CheckpointError, match=r"is of another fleet: model.step_size is 0.1"):
        jb.Fleet(jb.SGD(0.2), R).load(tmp_path / "f")
    path = tmp_path / "f" / second
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    with pytest.raises(jb.CheckpointError, match=rf"{second} is damaged"):
        fleet.load(tmp_path / "f")
    path.write_bytes((tmp_path / "g" / files(tmp_path / "g")[1]).read_bytes())
    with pytest.raises(jb.CheckpointError, match="is not the file that the manifest names"):
        fleet.load(tmp_path / "f")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=second):
        fleet.load(tmp_path / "f")
    shutil.rmtree(tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        fleet.load(tmp_path / "f")


def test_draws_go_on_and_another_key_is_refused(tmp_path):
    model = jb.bsgd_ru(3, target_mse=0.1, step_size=0.1)
    fleet = jb.Fleet(model, R, key=jax.random.key(1))
    whole, _ = fleet.run(fleet.init(), *rows([*"abcabc"]))
    fleet.save(tmp_path, whole)
    with pytest.raises(jb.CheckpointError, match="the key is another one"):
        jb.Fleet(model, R, key=jax.random.key(2)).load(tmp_path)
    again = jb.Fleet(model, R, key=jax.random.key(1))
    after = again.run(again.load(tmp_path), *rows([*"abc"]))[0]
    np.testing.assert_array_equal(after.words, fleet.run(whole, *rows([*"abc"]))[0].words)


def test_a_position_must_fit_json(tmp_path):
    fleet = jb.Fleet(MODEL, R)
    with pytest.raises(TypeError, match="position must be something that JSON can hold"):
        fleet.save(tmp_path, fleet.init(), position=object())
    fleet.save(tmp_path, fleet.init(), position=0)
    assert len(fleet.load(tmp_path)) == 0 and shards.read_manifest(str(tmp_path))[0]["count"] == 0


@pytest.mark.parametrize(
    "columns", [{"sum": [1.0, 2.0]}, {"sum": ["a", "b", "c"]}, {"sum": 3.0}, [1.0, 2.0, 3.0]]
)
def test_columns_must_have_a_number_for_each_stream(columns, tmp_path):
    fleet = jb.Fleet(MODEL, R)
    kept, _ = fleet.run(fleet.init(), *rows([*"abc"]))
    fleet.save(tmp_path, kept, columns={"sum": [1.0, 2.0, 3.0]})
    with pytest.raises((TypeError, ValueError), match="columns must be a dict of arrays of 3"):
        fleet.save(tmp_path, kept, columns=columns)
    assert fleet.load(tmp_path).columns["sum"].tolist() == [1.0, 2.0, 3.0]
