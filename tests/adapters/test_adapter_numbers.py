"""What is not a number, or not a weight, is named by the adapters and changes nothing."""

from __future__ import annotations

import datetime
import decimal
import fractions
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.adapters.feed import Feed
from jboost.core.sample import LARGEST_WEIGHT

pytest.importorskip("river")
pytest.importorskip("sklearn")
from jboost.adapters import river, sklearn
from jboost.adapters import tables as river_tables

NLMS = jb.NLMS(step_size=0.5, epsilon=0.0)
BAD_WEIGHTS = [-1.0, -1e-30, float("nan"), float("inf"), -float("inf"), np.float32("inf")]
NO_WEIGHTS = ["heavy", "1_000", 1j, np.datetime64("2024-01-01"), object()]
WEIGHTS = [0, 0.0, 1e-300, True, 1, 1e30, 1e39, 1e300, np.float64(1e300), np.finfo(float).max]
NO_NUMBERS = [
    "1_000", "red", "", b"1", 1j, np.complex64(1j), np.datetime64("2024-01-01"),
    np.timedelta64(1, "s"), datetime.datetime(2024, 1, 1), [1.0], np.ones(1), object(),
]  # fmt: skip
HUGE = 10**400
TOO_LARGE = [HUGE, -HUGE, 10**5000, fractions.Fraction(10**400)]
NUMBERS = [1, True, np.int8(1), np.float16(1), np.bool_(True), np.ones(()), jnp.ones(()),
           decimal.Decimal(1), fractions.Fraction(1), jnp.bfloat16(1)]  # fmt: skip


@jb.model
class Heaviest(jb.Learner):
    """Predicts the largest weight that it was given."""

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> Any:
        return jnp.zeros((), dtype)

    def predict(self, state: Any, x: Any) -> Any:
        return state

    def learn(self, state: Any, sample: Any) -> Any:
        return jnp.maximum(state, sample.weight)


@jb.model
class Holds(jb.Learner):
    """Has a state of a dtype that is not a float's."""

    name: str = jb.static()

    def init(self, num_features: int, dtype: Any = None, *, key: Any = None) -> Any:
        return {"w": jnp.zeros(num_features, dtype), "z": jnp.zeros(2, self.name)}

    def predict(self, state: Any, x: Any) -> Any:
        return state["w"] @ x

    def learn(self, state: Any, sample: Any) -> Any:
        return state


def bits(regressor: Any) -> list[bytes]:
    state = regressor.state_ if hasattr(regressor, "feed_") else regressor._learned.feed.state
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def taught() -> tuple[river.OnlineRegressor, sklearn.OnlineRegressor]:
    one = river.OnlineRegressor(NLMS)
    one.learn_one({"a": 1.0}, 2.0)
    return one, sklearn.OnlineRegressor(NLMS).fit([[1.0]], [2.0])


def refused(error: type[Exception], message: str, regressor: Any, method: str, *call: Any) -> None:
    """Check that a call is refused with a message, and leaves the regressor as it was."""
    before, columns = bits(regressor), {**getattr(regressor, "_learned", [{}])[0]}
    with pytest.raises(error, match=message):
        getattr(regressor, method)(*call)
    assert bits(regressor) == before
    assert {**getattr(regressor, "_learned", [{}])[0]} == columns


@pytest.mark.parametrize(
    "weight", [*BAD_WEIGHTS, *NO_WEIGHTS], ids=lambda weight: f"{weight!r:.20}"
)
def test_what_is_no_weight_is_refused(weight: Any) -> None:
    pd = pytest.importorskip("pandas")
    message = "a weight must be a finite number >= 0; got "
    error = TypeError if weight in NO_WEIGHTS else ValueError
    one, fitted = taught()
    for x in ({"a": 1.0}, {"b": 1.0}):
        refused(error, message, one, "learn_one", x, 1.0, weight)
        refused(error, message, one, "learn_many", pd.DataFrame([x] * 2), [1.0, 2.0], [1.0, weight])
    for method in ("fit", "partial_fit"):
        refused(error, message, fitted, method, [[1.0], [2.0]], [1.0, 2.0], [1.0, weight])
        refused(error, message, fitted, method, [[1.0], [2.0]], [1.0, 2.0], weight)
    with pytest.raises(error, match=message):
        river.OnlineRegressor(NLMS).learn_one({}, 1.0, weight)
    with pytest.raises(error, match=message):
        Feed(NLMS, 1).learn([1.0], 1.0, weight)
    with pytest.raises(error, match=message):
        Feed(NLMS, 1).learn_many([[1.0]], [1.0], weight)


def test_the_message_says_where_the_weight_is_and_what_to_do() -> None:
    message = "got nan in row 1: give 0 to a sample that is not to count, a large number to one"
    with pytest.raises(ValueError, match=message):
        Feed(NLMS, 1).learn_many(np.ones((3, 1)), np.ones(3), [1.0, np.nan, np.inf])
    with pytest.raises(ValueError, match=r"one number or have the shape \(3,\); got \(2,\)"):
        Feed(NLMS, 1).learn_many(np.ones((3, 1)), np.ones(3), [1.0, 1.0])


@pytest.mark.parametrize("weight", [*WEIGHTS, HUGE], ids=lambda weight: f"{weight!r:.9}")
def test_a_finite_weight_stays_finite(weight: Any) -> None:
    """Beyond the largest float32 it counts as the largest weight, and is not taken for infinite."""
    expected = float(np.float32(min(weight, LARGEST_WEIGHT)))
    one = river.OnlineRegressor(Heaviest())
    one.learn_one({"a": 1.0}, 1.0, w=weight)
    assert one.predict_one({"a": 1.0}) == expected
    if weight is not HUGE:  # no array of floats holds it
        pd = pytest.importorskip("pandas")
        many = river.OnlineRegressor(Heaviest())
        many.learn_many(pd.DataFrame({"a": [1.0, 1.0]}), [1.0, 1.0], [weight, 0.0])
        assert many.predict_one({"a": 1.0}) == expected
        rows, weights = np.ones((300, 1)), np.r_[weight, 1e-30, np.zeros(298)]
        fitted = sklearn.OnlineRegressor(Heaviest()).fit(rows, np.ones(300), weights)
        assert fitted.predict([[1.0]])[0] == max(expected, float(np.float32(1e-30)))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: f"{value!r:.20}")
def test_what_is_no_number_is_named(value: Any) -> None:
    one, _ = taught()
    fits = isinstance(value, (str, datetime.date, np.datetime64)) and value != "1_000"
    for name in ("a",) if fits else ("a", "new"):  # a new feature may be text or a time
        in_parts = isinstance(value, (complex, np.complexfloating))
        advice = "pass its real and its imaginary part" if in_parts else "encode it first"
        shown = re.escape(f"{name!r} must be a number; got {value!r:.60}: {advice}")
        refused(TypeError, shown, one, "learn_one", {"a": 1.0, name: value}, 1.0)
    refused(TypeError, "'a' must be a number; got ", one, "predict_one", {"a": value})
    assert one.predict_one({"a": 1.0, "new": value}) == 1.0  # features never learned are ignored
    refused(TypeError, "'y' must be a number; got ", one, "learn_one", {"a": 1.0}, value)
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": [1.0, 2.0], "new": [value, value]})
    if not fits:
        refused(TypeError, "'new' must be a number; got ", one, "learn_many", table, [1.0, 1.0])
    targets = np.empty(2, object)
    targets[:] = [1.0, value]
    refused(TypeError, "'y' must be a number; got ", one, "learn_many", table[["a"]], targets)


@pytest.mark.parametrize("value", ["1_000", datetime.timedelta(1), [1.0]], ids=repr)
def test_what_is_no_number_is_named_in_a_table_of_polars(value: Any) -> None:
    one, _ = taught()
    table = pytest.importorskip("polars").DataFrame({"a": [1.0, 2.0], "new": [value, value]})
    refused(TypeError, "'new' must be a number; got ", one, "learn_many", table, [1.0, 1.0])


@pytest.mark.parametrize("value", TOO_LARGE, ids=lambda value: type(value).__name__)
def test_a_number_beyond_floats_is_named(value: Any) -> None:
    one, _ = taught()
    message = "must be a number; got one beyond 1.8e308, the largest float: leave it out"
    refused(ValueError, f"'a' {message}", one, "learn_one", {"a": value}, 1.0)
    refused(ValueError, f"'b' {message}", one, "learn_one", {"b": value}, 1.0)
    refused(ValueError, f"'y' {message}", one, "learn_one", {"a": 1.0}, value)
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": [1.0, value]})
    refused(ValueError, f"'a' {message}", one, "learn_many", table, [1.0, 1.0])


@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: type(value).__name__)
def test_every_real_number_is_taken(value: Any) -> None:
    one, _ = taught()
    assert one.predict_one({"a": value}) == 1.0
    one.learn_one({"a": value}, value)
    assert one.predict_one({"a": 1.0}) == 1.0


def test_gaps_of_tables_are_missing_values() -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    gaps = [1.0, None, 3.0]
    series = [pd.Series(gaps, dtype=dtype) for dtype in ("float64", "Int64", "Float64", "object")]
    tables: list[Any] = [pd.DataFrame({"a": one, "b": gaps}) for one in series]
    tables += [pl.DataFrame({"a": gaps, "b": [1, None, 3]}), pd.DataFrame({"a": ["x"]})[:0]]
    for table in tables:
        names, values = river_tables.names_and_values(table)
        expected = np.array([[1.0, 1.0], [np.nan, np.nan], [3.0, 3.0]])
        np.testing.assert_array_equal(values, expected[: len(values), : len(names)])


@pytest.mark.parametrize("dtype", ["complex64", "int4", "uint4"])
def test_a_state_that_a_feed_cannot_hold_is_named(dtype: str) -> None:
    message = (
        rf"a state must hold real numbers of 8 bits or more; state\['z'\] is of dtype {dtype}: "
    )
    with pytest.raises(TypeError, match=message):
        Feed(Holds(dtype), 2)
    one = river.OnlineRegressor(Holds(dtype))
    with pytest.raises(TypeError, match=message):
        one.learn_one({"a": 1.0}, 1.0)
    assert one.predict_one({"a": 1.0}) == 0.0 and not one._learned.columns
    with pytest.raises(TypeError, match=message):
        sklearn.OnlineRegressor(Holds(dtype)).fit([[1.0]], [1.0])


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float8_e4m3fn", "uint16", "bool"])
def test_small_numbers_in_a_state_are_taken(dtype: str) -> None:
    assert Feed(Holds(dtype), 2).learn([1.0, 1.0], 1.0).predict([1.0, 2.0]).tolist() == [0.0]
