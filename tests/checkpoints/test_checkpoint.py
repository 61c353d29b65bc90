"""Checkpoints: a run goes on bit for bit; what a file can hold comes back, the rest is refused."""

from __future__ import annotations

import json
import math
import os
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table import EVERY, SOME

import jboost as jb
from jboost.boosting.emphasis import Emphasis
from jboost.boosting.modes import Mode
from jboost.checkpoints import archive
from jboost.checkpoints.checkpoint import CheckpointError, inspect, load, read, save
from jboost.checkpoints.description import Store, describe, rebuild
from jboost.core import Learner, Sample, State, model, pytree, static
from jboost.core.template import template
from jboost.running.stream import run_stream

KEY = jax.random.key(7)
SMALL = jb.SGD(step_size=0.1)


def stream(length: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    xs = np.random.default_rng(1).normal(size=(length, 3)).astype(dtype)
    return xs, (xs @ np.array([1.0, -0.5, 0.2], dtype) + xs[:, 0] ** 2).astype(dtype)


def saved_and_loaded(folder: Path, *saved: Any, **options: Any) -> Any:
    """Save to a file and load it again."""
    save(folder / "run", *saved, **options)
    return load(folder / "run")


def same(a: Any, b: Any) -> None:
    """Equal in structure, in types and in bits."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(left) is type(right)
        assert np.asarray(left).dtype == np.asarray(right).dtype
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


# --- a run goes on, bit for bit ------------------------------------------------------------------


LONG = {
    "SGD": (jb.bsgd_ru(5, target_mse=0.1, step_size=np.linspace(0.05, 0.2, 5)), np.float32),
    "Newton": (jb.bnm_ru(4, target_mse=0.1, forgetting=0.99, ridge=0.1), np.float64),
    "nested": (
        jb.boost(
            [
                jb.boost(SMALL, 2, target_mse=0.1, mode=jb.RandomUpdate(), combiner=jb.NSGD(0.1)),
                SMALL,
            ],
            target_mse=0.1,
            mode=jb.PoissonReuse(),
            combiner=jb.NSGD(0.1),
        ),
        np.float32,
    ),
}


@pytest.mark.parametrize(("booster", "dtype"), LONG.values(), ids=LONG.keys())
def test_a_run_goes_on_bit_for_bit(
    booster: Learner, dtype: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if dtype == np.float64:
        request.getfixturevalue("x64")
    xs, ds = stream(80, dtype)
    whole, trace = jb.run(booster, xs, ds, KEY)
    state, first = jb.run(booster, xs[:40], ds[:40], KEY)
    again, state_again, key = saved_and_loaded(tmp_path, booster, state, KEY)
    same(state_again, state)
    state, second = jb.run(again, xs[40:], ds[40:], key, state_again)
    same(state, whole)
    assert jax.tree.leaves(whole.emphasis)[0].dtype == dtype
    both = np.concatenate([first.prediction, second.prediction])
    np.testing.assert_array_equal(both, trace.prediction)


# --- what a file can hold ------------------------------------------------------------------------


def savable(cases: list[Any]) -> list[Any]:
    """All learners except Gradient: its optimiser is a function, which a file cannot hold."""
    return [case for case in cases if not case.id.startswith("Gradient")]


@pytest.mark.parametrize("learner", savable(EVERY))
def test_every_model_can_be_described(learner: Learner) -> None:
    store = Store()
    description = json.loads(json.dumps(describe(learner, store), allow_nan=False))
    same(rebuild(description, store), learner)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("learner", savable(SOME))
def test_every_state_comes_back(
    learner: Learner, dtype: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if dtype == jnp.float64:
        request.getfixturevalue("x64")
    rng = np.random.default_rng(0)
    blank = template(learner, 3, jnp.dtype(dtype).name, KEY)
    state = jax.tree.map(
        lambda leaf: jnp.asarray(rng.integers(-9, 9, leaf.shape) / 7).astype(leaf.dtype), blank
    )
    again, state_again, _ = saved_and_loaded(tmp_path, learner, state, KEY)
    same((again, state_again), (learner, state))


def test_names_of_the_librarys_models_are_unique() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith("jboost.")]
    classes = {value for module in modules for value in vars(module).values()
             if isinstance(value, type) and issubclass(value, (Learner, Mode, Emphasis))
             and "__dataclass_fields__" in vars(value)}  # fmt: skip
    assert len(classes) > 10
    for cls in classes:  # a private class is none that a file may name
        named = pytree.MODELS.get(pytree.name_of(cls))
        assert named is (None if cls.__name__.startswith("_") else cls)


@model
class Bag(Learner):
    """A learner from outside the library: its fields hold any value, and its state is awkward."""

    anything: Any = 0.0
    words: Any = static(default="")
    later: Any = static(default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "later", self.later or "filled in")

    @property
    def needs_key(self) -> bool:
        return True

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> Any:
        pairs = num_features * (num_features + 1) // 2
        odd = {"pairs/é": jnp.ones(pairs, dtype), "pairs__": jnp.zeros(2, jnp.bfloat16)}
        return odd | {"key": key, "none": jnp.ones((0, 3), jnp.bool_)}

    def predict(self, state: Any, x: Any) -> Any:
        return jnp.sum(state["pairs/é"])

    def learn(self, state: State, sample: Sample) -> State:
        return state


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.floats(width=32).map(np.float32),
    st.integers(0, 255).map(np.uint8), st.floats().map(np.float64),
    st.lists(st.floats(width=16)).map(lambda v: np.array(v, np.float16)),
    st.lists(st.floats(width=32), max_size=3).map(lambda v: jnp.asarray(v, np.float32)),
    st.lists(st.integers(0, 9)).map(lambda v: np.array(v, np.int64)),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.builds(Bag, anything=inner, words=st.text() | st.tuples(st.text(), st.integers()))
    ),
    max_leaves=8,
)


@given(values)
def test_any_values_come_back_exactly(tmp_path_factory: Any, value: Any) -> None:
    bag, store, path = Bag(value), Store(), tmp_path_factory.mktemp("any") / "a"
    with path.open("wb") as file:
        archive.write(file, {"model": describe(bag, store)}, store.arrays)
    header, arrays = archive.read(path)
    same(rebuild(header["model"], Store(arrays)), bag)


def test_an_awkward_state_comes_back(tmp_path: Path) -> None:
    bag = Bag((math.inf, -math.inf, math.nan, jnp.ones(2), {"é": np.ones(1), "ü": np.zeros(1)}))
    state = bag.init(4, key=KEY)
    again, state_again, _ = saved_and_loaded(tmp_path, bag, state)
    same(again, bag)
    assert jax.random.key_data(state_again.pop("key")).tolist() == [0, 7]
    del state["key"]
    same(state_again, state)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_come_back_with_their_implementation(impl: str, tmp_path: Path) -> None:
    keys = jax.random.split(jax.random.key(3, impl=impl), 4)
    bag = Bag(keys[1])
    bag, state, again = saved_and_loaded(tmp_path, bag, bag.init(2, key=keys[0]), keys)
    for old, new in [(keys, again), (keys[0], state["key"]), (keys[1], bag.anything)]:
        assert new.dtype == old.dtype and new.shape == old.shape
        np.testing.assert_array_equal(jax.random.key_data(new), jax.random.key_data(old))
    assert saved_and_loaded(tmp_path, SMALL, SMALL.init(2))[2] is None


BOOSTER = jb.bsgd_wu(4, target_mse=0.1, step_size=0.1)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 90])
@pytest.mark.parametrize("learner", [SMALL, jb.Newton(), BOOSTER, Bag()])
def test_the_width_is_found(learner: Learner, n: int, tmp_path: Path) -> None:
    state = learner.init(n, key=KEY)
    save(tmp_path / "a", learner, state, KEY)
    assert inspect(tmp_path / "a")["num_features"] == n
    save(tmp_path / "a", learner, state, KEY, num_features=n)
    with pytest.raises(ValueError, match=f"num_features={n + 1}"):
        save(tmp_path / "a", learner, state, KEY, num_features=n + 1)


def test_states_of_many_streams(tmp_path: Path) -> None:
    learner = jb.bsgd_ru(3, target_mse=0.1, step_size=0.1)
    single = learner.init(3, key=KEY)
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + leaf.dtype.type(1)]), single)
    chex.assert_trees_all_equal(saved_and_loaded(tmp_path, learner, many)[1], many)
    uneven = many._replace(t=jnp.zeros(3, jnp.uint32))
    with pytest.raises(ValueError, match=r"state\..* has .* where .* fits"):
        save(tmp_path / "a", learner, uneven)


def test_position_and_extra(tmp_path: Path) -> None:
    extra = {"skipped": 3, "columns": ["a", "ü"], "mse": 0.1}
    save(tmp_path / "a", SMALL, SMALL.init(2), KEY, position=2**40, extra=extra)
    checkpoint = read(tmp_path / "a")
    assert (checkpoint.position, checkpoint.extra) == (2**40, extra)
    about = inspect(tmp_path / "a")
    assert (about["position"], about["extra"], about["format"]) == (2**40, extra, archive.FORMAT)
    assert (about["keys"], about["dtype"]) == ({"key": "threefry2x32"}, "float32")
    assert about["library"] == jb.__version__


@pytest.mark.parametrize("name", ["a", "a.npz", "a.tar.gz", ".hidden", "ü λ", "x" * 255])
def test_the_name_is_used_as_given(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (name, Path(name), tmp_path / name):
        save(path, SMALL, SMALL.init(2))
        assert os.listdir(tmp_path) == [name]
        load(path)


def test_others_can_read_the_file(tmp_path: Path) -> None:
    state = jb.Newton().init(3)
    save(tmp_path / "a", jb.Newton(), state, KEY)
    with np.load(tmp_path / "a", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["state.T"], state.T)
        assert arrays["state.turn"].shape == ()
    with zipfile.ZipFile(tmp_path / "a") as archived:
        assert archived.testzip() is None
        assert json.loads(archived.read("jboost.json"))["model"]["class"] == "Newton"


def test_the_same_contents_are_the_same_bytes(tmp_path: Path) -> None:
    save(tmp_path / "a", SMALL, SMALL.init(2), KEY)
    save(tmp_path / "b", *load(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# --- what a file cannot hold ---------------------------------------------------------------------


def test_functions_are_refused_unless_the_model_is_supplied(tmp_path: Path) -> None:
    bag, path = Bag(0.5, words=math.sin), tmp_path / "a"
    state = bag.init(2, key=KEY)
    with pytest.raises(TypeError, match=r"words is the function math\.sin.*supply_model=True"):
        save(path, bag, state)
    assert not path.exists()
    save(path, bag, state, supply_model=True)
    with pytest.raises(CheckpointError, match=r"model\.words is the function math\.sin.*model=…"):
        load(path)
    again, state_again, _ = load(path, model=bag)
    assert again is bag
    chex.assert_trees_all_equal(state_again["pairs/é"], state["pairs/é"])
    for other, where in [
        (Bag(0.5, words=math.cos), r"model\.words is 'the function math\.sin' in the file"),
        (Bag(0.25, words=math.sin), r"model\.anything is 0\.5 in the file and 0\.25"),
        (Bag((), words=math.sin), r"model\.anything is 0\.5 in the file and \[\]"),
        (SMALL, r"model is 'Bag|model is '.*\.Bag' in the file and 'SGD'"),
    ]:
        with pytest.raises(CheckpointError, match=where):
            load(path, model=other)


def test_a_supplied_model_is_compared_by_its_arrays_too(tmp_path: Path) -> None:
    bag = Bag([np.arange(3), {"a": (1, 2.0)}])
    save(tmp_path / "a", bag, bag.init(2, key=KEY))
    load(tmp_path / "a", model=Bag([np.arange(3), {"a": (1, 2.0)}]))
    with pytest.raises(CheckpointError, match=r"the numbers of model\.anything\[0\] differ"):
        load(tmp_path / "a", model=Bag([np.arange(1, 4), {"a": (1, 2.0)}]))
    with pytest.raises(CheckpointError, match=r"anything\[1\]\.a\[0\] is 1 in the file and 1\.0"):
        load(tmp_path / "a", model=Bag([np.arange(3), {"a": (1.0, 2.0)}]))
    with pytest.raises(CheckpointError, match=r"anything\[1\] is {'a'"):
        load(tmp_path / "a", model=Bag([np.arange(3), {"a": (1, 2.0), "class": 3}]))
    with pytest.raises(TypeError, match="model must be the learner"):
        load(tmp_path / "a", model=3)  # type: ignore[arg-type]


class Pair(NamedTuple):
    left: float
    right: float


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: (SMALL, {"w": jnp.zeros(2)}), ValueError, "another structure"),
        (lambda: (jb.Newton(), SMALL.init(2)), ValueError, "state does not belong to this model"),
        (lambda: (SMALL, SMALL.init(2)._replace(w=np.zeros(2))), ValueError, "float64"),
        (lambda: (SMALL, SMALL.init(2)._replace(w=0.5)), ValueError, r"has float\[\]"),
        (lambda: (SMALL, None), ValueError, "another structure"),
        (lambda: ("SGD", SMALL.init(2)), TypeError, "model must be a learner"),
        (lambda: (SMALL, SMALL.init(2), 7), TypeError, r"key must be a jax\.random\.key.*got 7"),
        (lambda: (SMALL, SMALL.init(2), jnp.zeros(2, jnp.uint32)), TypeError, "key must be"),
        (lambda: (Bag("text"), Bag().init(2, key=KEY)), TypeError, r"model\.anything must be"),
        (lambda: (Bag(Pair(1, 2)), Bag().init(2, key=KEY)), TypeError, r"model\.anything must be"),
        (lambda: (Bag({1: 2}), Bag().init(2, key=KEY)), TypeError, r"model\.anything must be"),
        (lambda: (Bag(np.array([None])), Bag().init(2, key=KEY)), TypeError, "dtype.*object"),
    ],
)  # fmt: skip
def test_wrong_arguments(wrong: Any, error: type, message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        save(tmp_path / "a", *wrong())
    assert os.listdir(tmp_path) == []


def test_wrong_keywords(tmp_path: Path) -> None:
    def attempt(**wrong: Any) -> None:
        save(tmp_path / "a", SMALL, SMALL.init(2), **wrong)

    for name, value in [("position", -1), ("position", 0.5), ("num_features", 0)]:
        with pytest.raises(ValueError, match=f"{name} must be a whole number"):
            attempt(**{name: value})
    for extra in ({"a": math.nan}, {"a": KEY}, [1, 2]):
        with pytest.raises(TypeError, match="extra must be a dict that JSON can hold"):
            attempt(extra=extra)
    with pytest.raises(ValueError, match="description takes"):
        attempt(extra={"a": "x" * archive.LARGEST_HEADER})
    nested: Any = 0.0
    for _ in range(200):
        nested = (nested,)
    with pytest.raises(ValueError, match="nested too deeply"):
        save(tmp_path / "a", Bag(nested), Bag().init(2, key=KEY))
    with pytest.raises(TypeError, match="save outside of jit"):
        jax.jit(lambda state: save(tmp_path / "a", SMALL, state))(SMALL.init(2))
    assert os.listdir(tmp_path) == []


def test_double_precision_is_not_cut(x64: None, tmp_path: Path) -> None:
    save(tmp_path / "state", SMALL, SMALL.init(2, jnp.float64))
    save(tmp_path / "model", Bag(jnp.ones(1)), Bag().init(2, jnp.float32, key=KEY))
    jax.config.update("jax_enable_x64", False)
    for name in ("state", "model"):
        with pytest.raises(CheckpointError, match=r"float64.*jax_enable_x64"):
            load(tmp_path / name)


def test_a_file_older_than_a_field(tmp_path: Path) -> None:
    bag, path = Bag(0.5, words="w", later="set"), tmp_path / "a"
    save(path, bag, bag.init(2, key=KEY))
    header, arrays = archive.read(path)
    del header["model"]["fields"]["later"], header["arrays"]
    with path.open("wb") as file:
        archive.write(file, header, arrays)
    again: Any = load(path)[0]
    assert (again.anything, again.words, again.later) == (0.5, "w", "filled in")
    assert load(path, model=bag)[0] is bag
    with pytest.raises(CheckpointError, match=r"model\.words is 'w' in the file and 'v'"):
        load(path, model=Bag(0.5, words="v"))


@pytest.mark.parametrize("path", [b"a", 7, None, "a\0b"])
def test_what_is_no_path_is_named(path: Any) -> None:
    for call in (
        lambda: save(path, SMALL, SMALL.init(2)),
        lambda: load(path),
        lambda: inspect(path),
    ):
        with pytest.raises(TypeError, match=r"path must be a path, as text.*; got "):
            call()
    if path is not None:
        with pytest.raises(TypeError, match=r"checkpoint must be a path, as text.*; got "):
            run_stream(SMALL, stream(3), checkpoint=path)


def nested(depth: int, kind: str) -> dict[str, Any]:
    inner: Any = 0
    for _ in range(depth - 1):
        inner = {"a": inner} if kind == "dicts" else [inner]
    return {"a": inner}


@pytest.mark.parametrize("kind", ["dicts", "lists"])
@pytest.mark.parametrize("depth", [1, 100, 101, 900, 5_000, 100_000])
def test_how_deep_extra_may_be(depth: int, kind: str, tmp_path: Path) -> None:
    extra = nested(depth, kind)
    if depth > 100:
        with pytest.raises(ValueError, match="extra must be nested at most 100 levels deep"):
            save(tmp_path / "a", SMALL, SMALL.init(2), extra=extra)
        assert not os.listdir(tmp_path)
    else:
        save(tmp_path / "a", SMALL, SMALL.init(2), extra=extra)
        assert read(tmp_path / "a").extra == extra


def test_extra_that_holds_itself(tmp_path: Path) -> None:
    extra: dict[str, Any] = {}
    extra |= {"a": [extra, extra], "b": extra}
    with pytest.raises(ValueError, match="extra must be nested at most 100 levels"):
        save(tmp_path / "a", SMALL, SMALL.init(2), extra=extra)
