"""Arguments and fields: what is let through, what is refused, and what the message says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jboost.core import checks
from jboost.core.pytree import model, static

pytestmark = pytest.mark.core


@model
class Filter:
    """A model with a field of every kind."""

    step_size: float
    ratio: float | None = None
    order: int = static(default=1)
    kind: str = static(default="plain")

    def __post_init__(self) -> None:
        checks.fields(
            self,
            step_size=checks.a_number(above=0, at_most=2),
            ratio=checks.or_none(checks.a_number(at_least=0, below=1)),
            order=checks.a_whole_number(at_least=1),
            kind=checks.one_of("plain", "sign"),
        )


def test_fields_are_converted():
    filter_ = Filter(np.int64(1), order=np.int8(3), kind="sign")
    assert filter_.step_size == 1.0 and type(filter_.step_size) is float
    assert filter_.order == 3 and type(filter_.order) is int
    assert filter_.ratio is None and filter_.kind == "sign"
    assert Filter(2, ratio=0).ratio == 0.0


def test_a_number_may_be_one_per_learner():
    assert Filter([0.1, 0.2]).step_size.tolist() == [0.1, 0.2]
    on_device = jnp.array([0.1, 0.2])
    assert Filter(on_device).step_size is on_device
    with pytest.raises(ValueError, match=r"step_size > 0 and step_size <= 2; got \[0.1, 3\]"):
        Filter([0.1, 3])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"step_size": 0}, ValueError, "step_size must be a finite real number .*; got 0"),
        ({"step_size": 2.5}, ValueError, "step_size > 0 and step_size <= 2; got 2.5"),
        ({"step_size": float("nan")}, ValueError, "step_size .* got nan"),
        ({"step_size": float("inf")}, ValueError, "step_size .* got inf"),
        ({"step_size": []}, ValueError, r"step_size .* got \[\]"),
        ({"step_size": "0.1"}, TypeError, "step_size .* got '0.1'"),
        ({"step_size": True}, TypeError, "step_size .* got True"),
        ({"step_size": None}, TypeError, "step_size .* got None"),
        ({"ratio": 1}, ValueError, "ratio >= 0 and ratio < 1; got 1"),
        ({"ratio": -0.1}, ValueError, "ratio >= 0 and ratio < 1; got -0.1"),
        ({"order": 0}, ValueError, "order must be a whole number >= 1; got 0"),
        ({"order": 1.5}, ValueError, "order must be a whole number >= 1; got 1.5"),
        ({"order": True}, ValueError, "order .* got True"),
        ({"order": "2"}, ValueError, "order .* got '2'"),
        ({"order": float("inf")}, ValueError, "order .* got inf"),
        ({"kind": "other"}, ValueError, "kind must be one of 'plain', 'sign'; got 'other'"),
    ],
)
def test_what_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Filter(**{"step_size": 0.1, **arguments})


def test_traced_numbers_pass_unchecked():
    """A constructor inside a transformation meets numbers that are not known yet."""
    assert jax.jit(lambda mu: Filter(mu).step_size)(-1.0) == -1.0
    assert jax.grad(lambda mu: Filter(mu).step_size ** 2)(3.0) == 6.0


def test_transformations_do_not_check_again():
    """Unflattening puts placeholders into the fields; the rules never see them."""
    assert jax.tree.map(lambda leaf: -leaf, Filter(0.1)).step_size == -0.1
    assert jax.tree.map(lambda _: None, Filter(0.1)).step_size is None


def test_kind():
    rule = checks.of_kind(Filter, "a Filter(step_size=0.1)")
    filter_ = Filter(0.1)
    assert rule("filter", filter_) is filter_
    with pytest.raises(TypeError, match=r"filter must be a Filter\(step_size=0.1\); got 0.1"):
        rule("filter", 0.1)


def test_spending():
    checks.spending(0.5, 1)
    checks.spending(0, np.array([True, False]))
    checks.spending(np.ones(3), jnp.arange(3))
    with pytest.raises(ValueError, match=r"weight >= 0; got -1"):
        checks.spending(-1, 1)
    for repeats in (-1, 0.5, np.array([1, -1])):
        with pytest.raises(ValueError, match="repeats must be a whole number >= 0; got"):
            checks.spending(1.0, repeats)


def test_keys_and_dtypes():
    keys = jax.random.split(jax.random.key(0), 3)
    assert checks.key("key", keys) is keys
    for value in (0, jax.random.key_data(keys), None):
        with pytest.raises(TypeError, match=r"key must be a jax.random.key, .*; got"):
            checks.key("key", value)
    for dtype in (bool, np.int8, np.float64, jnp.bfloat16):
        checks.real_dtype("xs", np.zeros(2, dtype), "shape (T, r)")
    for dtype in (complex, object, "U1", "M8[s]"):
        with pytest.raises(TypeError, match=r"xs must hold real numbers \(shape \(T, r\)\); got"):
            checks.real_dtype("xs", np.zeros(2, dtype), "shape (T, r)")
