"""``vmap`` whose mapped axis stays the last one in every intermediate array.

``jax.vmap`` moves it to the front at the first broadcast, and XLA lays arrays out as it finds them,
so that a loop over a small learner's few features ends up innermost, where vector instructions find
nothing to do. Here the program that ``vmap`` makes is walked once more, with the leading axis of
every mapped value rolled to the end. An operation without a rule gets its operands rolled back, so
the result is that of ``vmap`` whatever the program holds.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

# Operations on operands of one shape (or scalars), entry by entry.
_ENTRYWISE = """
    abs add add_any and ceil clamp convert_element_type copy cos div eq erf exp exp2 expm1 floor ge
    gt integer_pow is_finite le log log1p logistic lt max min mul ne neg not or pow rem round rsqrt
    select_n sign sin sqrt square stop_gradient sub tan tanh xor
"""
_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")


class _Value(NamedTuple):
    """An array, and whether its leading axis has been rolled to the end."""

    array: Any
    rolled: bool


def vmap(f: Callable[..., Any], axis_size: int) -> Callable[..., Any]:
    """``jax.vmap(f, -1, -1)``: arguments and results have the mapped axis last."""

    def mapped(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        leading = [jax.eval_shape(_unroll, leaf) for leaf in leaves]
        program, shape = jax.make_jaxpr(jax.vmap(f, axis_size=axis_size), return_shape=True)(
            *structure.unflatten(leading)
        )
        values = [_Value(leaf, True) for leaf in leaves]
        results = _walk(program.jaxpr, [_Value(c, False) for c in program.consts], values)
        return jax.tree.unflatten(
            jax.tree.structure(shape), [_rolled(value).array for value in results]
        )

    return mapped


def _walk(jaxpr: Any, consts: Sequence[_Value], arguments: Sequence[_Value]) -> list[_Value]:
    values: dict[Any, _Value] = {}

    def read(atom: Any) -> _Value:
        return _Value(atom.val, False) if hasattr(atom, "val") else values[atom]

    values.update(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    for equation in jaxpr.eqns:
        results = _apply(equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: Any, values: list[_Value]) -> list[_Value]:
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:  # inlined: nothing differentiates what has been walked
        inner = params.get("jaxpr", params.get("call_jaxpr"))
        return _walk(inner.jaxpr, [_Value(c, False) for c in inner.consts], values)
    if name == "cond" and any(value.rolled for value in values):
        return _conditional(params["branches"], values)
    if name == "dynamic_slice" and values[0].rolled and not any(v.rolled for v in values[1:]):
        (array, _), *starts = values
        first, *rest = params["slice_sizes"]
        if first == array.shape[-1]:
            indices = [start.array for start in (*starts[1:], starts[0])]
            return [_Value(jax.lax.dynamic_slice(array, indices, (*rest, first)), True)]
    if any(value.rolled for value in values):
        changed = _rolled_params(name, params, equation)
        if changed is not None:
            operands = [_rolled(value).array for value in values]
            return [_Value(equation.primitive.bind(*operands, **changed), True)]
    operands = [_unroll(value.array) if value.rolled else value.array for value in values]
    results = equation.primitive.bind(*operands, **params)
    if not equation.primitive.multiple_results:
        results = [results]
    return [_Value(result, False) for result in results]


def _conditional(branches: Sequence[Any], values: list[_Value]) -> list[_Value]:
    """Choose between programs that are walked themselves; arrays come back rolled."""

    def walked(branch: Any) -> Callable[..., list[Array]]:
        def call(*arrays: Array) -> list[Array]:
            consts = [_Value(c, False) for c in branch.consts]
            inputs = [_Value(a, v.rolled) for a, v in zip(arrays, values[1:], strict=True)]
            return [_rolled(result).array for result in _walk(branch.jaxpr, consts, inputs)]

        return call

    arrays = [value.array for value in values[1:]]
    results = jax.lax.switch(values[0].array, [walked(branch) for branch in branches], *arrays)
    return [_Value(result, bool(jnp.ndim(result))) for result in results]


def _rolled_params(name: str, params: dict[str, Any], equation: Any) -> dict[str, Any] | None:
    """Return what an operation must be told about rolled operands; None where there is no rule."""
    if name in _ENTRYWISE.split():
        return params
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    if name in _REDUCTIONS and 0 not in params["axes"]:
        return params | {"axes": tuple(axis - 1 for axis in params["axes"])}
    if name == "squeeze" and 0 not in params["dimensions"]:
        return params | {"dimensions": tuple(axis - 1 for axis in params["dimensions"])}
    if name == "broadcast_in_dim" and before and before[0] == after[0]:
        first, *rest = params["broadcast_dimensions"]
        if first == 0:
            axes = (*(axis - 1 for axis in rest), len(after) - 1)
            return params | {"shape": (*after[1:], after[0]), "broadcast_dimensions": axes}
    if name == "reshape" and before and after and before[0] == after[0]:
        return params | {"new_sizes": (*after[1:], after[0])}
    return None


def _rolled(value: _Value) -> _Value:
    if value.rolled or not jnp.ndim(value.array):
        return value
    return _Value(jnp.moveaxis(value.array, 0, -1), True)


def _unroll(array: Any) -> Array:
    return jnp.moveaxis(array, -1, 0)
