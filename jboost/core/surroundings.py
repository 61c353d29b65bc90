"""Where a model is traced, which decides how its products are written and how it is cut in stages.

The engine says it with :func:`written_for`. On a CPU XLA compiles a call that carries a certain tag
as one function, a *kernel*, instead of as a list of small ones. The whole loop of a small model is
one kernel. A large model would compile for too long so: there each :func:`stage` of a step is a
kernel of its own, in a plain loop.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

import jax
from jax.core import Tracer, eval_jaxpr
from jax.experimental.xla_metadata import set_xla_metadata
from jax.interpreters.partial_eval import dce_jaxpr_consts

Surroundings = Literal["anywhere", "stages", "kernel", "side by side"]
"""Anywhere; in a loop whose stages are kernels; inside a kernel; or inside it with the copies of a
learner side by side."""
_surroundings: ContextVar[Surroundings] = ContextVar("surroundings", default="anywhere")
_Result = TypeVar("_Result")


@contextmanager
def written_for(surroundings: Surroundings) -> Iterator[None]:
    """Write what is traced in this context for these surroundings."""
    token = _surroundings.set(surroundings)
    try:
        yield
    finally:
        _surroundings.reset(token)


def surroundings() -> Surroundings:
    """Return where the model is traced."""
    return _surroundings.get()


def as_kernel(results: Any) -> Any:
    """Return the results of a compiled call, with the tag that makes the call a kernel."""
    return set_xla_metadata(results, xla_cpu_small_call="true", inlineable="false")


def stage(compute: Callable[[], _Result]) -> _Result:
    """Return ``compute()``, computed as a stage of a step.

    Nothing of it is computed a second time where its results are used: the compiler works on each
    stage by itself. ``compute`` takes no arguments, but uses values that were computed before.
    """
    if surroundings() not in ("stages", "kernel"):
        return compute()
    with written_for("kernel"):
        return as_kernel(_apart(compute))


def _apart(compute: Callable[[], Any]) -> Any:
    """Return ``compute()`` as a compiled call.

    The call is handed only the values that its results depend on. XLA aborts the process over a
    kernel that is handed others.
    """
    program, shapes = jax.make_jaxpr(compute, return_shape=True)()
    leaves, structure = jax.tree.flatten(shapes)
    needed, used, _ = dce_jaxpr_consts(program.jaxpr, [True] * len(leaves), instantiate=False)
    values = [value for value, is_used in zip(program.consts, used, strict=True) if is_used]
    moving = [isinstance(value, Tracer) for value in values]

    def run(operands: list[Any]) -> list[Any]:
        rest = iter(operands)
        consts = [next(rest) if moves else v for v, moves in zip(values, moving, strict=True)]
        return eval_jaxpr(needed, consts)

    operands = [value for value, moves in zip(values, moving, strict=True) if moves]
    return structure.unflatten(jax.jit(run)(operands))
