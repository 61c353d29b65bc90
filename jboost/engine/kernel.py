"""One kernel: a whole loop compiled as a single function. Only this file sets compiler options.

On a CPU a ``lax.scan`` runs as a list of small kernels, and for a small model their dispatch is
nearly all of the time. XLA compiles a call that carries a certain tag as *one* function instead,
which is several times faster. The tag is experimental; :mod:`jboost.engine.plan` decides where it
may be used.
"""

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jboost.core import Key
from jboost.core.surroundings import as_kernel, written_for

# Without the first two options XLA puts fusions into the call that it cannot compile there, and
# divides work on large arrays between cores, which it cannot do there either. With the last one the
# few fusions around the call are compiled as the call is: XLA's other way takes 0.1 s longer, of
# the 2.4 s in which auto compiles.
OPTIONS: dict[str, Any] = {
    "xla_cpu_experimental_ynn_fusion_type": "",
    "xla_cpu_multi_thread_eigen": False,
    "xla_cpu_use_fusion_emitters": False,
}

# At XLA's own level, 3, short loops over the copies are unrolled before they become vector code,
# and work on one number at a time. Measured with m = 20, one kernel, µs a step at levels 3 and 2:
# BSGD-WU, r = 3: 0.19 and 0.14; BNM-WU, r = 3: 0.46 and 0.23, r = 21: 5.0 and 2.1. Level 2 compiles
# programs of thousands of operations in two thirds of the time.
LEVEL = "xla_backend_optimization_level"
KERNEL_LEVEL, QUICKEST_LEVEL = 2, 0

# What a kernel may hold: element-wise operations, reductions, products, slices and control flow.
# Sorting, scattering, linear algebra, callbacks and the like fail to compile there.
_POSSIBLE = """
    abs add add_any and argmax argmin atan2 bitcast_convert_type broadcast_in_dim cbrt ceil
    clamp concatenate cond convert_element_type copy copy_p cos cosh cumlogsumexp cummax cummin
    cumprod cumsum custom_jvp_call custom_vjp_call custom_vmap_call div dot_general
    dynamic_slice dynamic_update_slice eq erf erf_inv exp exp2 expand_dims expm1 floor gather ge
    gt integer_pow iota is_finite jit le log log1p logistic lt max min mul ne neg nextafter not
    optimization_barrier or pad pjit pow random_bits random_fold_in random_seed random_split
    random_unwrap random_wrap reduce_and reduce_max reduce_min reduce_or reduce_precision
    reduce_prod reduce_sum rem reshape rev round rsqrt scan select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh slice split sqrt square squeeze
    stack stop_gradient sub tan tanh threefry2x32 transpose unstack while xla_metadata_value xor
"""
POSSIBLE = frozenset(_POSSIBLE.split())
TAG = "xla_metadata_value"  # the operation that tags a call


def outermost(
    f: Callable[..., Any], *, kernel: bool = False, level: int | None = None, **settings: Any
) -> Any:
    """Return ``jax.jit(f, **settings)`` with the compiler options that its form needs.

    A function that calls :func:`one_kernel` must be made with ``kernel=True``. ``level`` is the
    compiler's optimisation level, by default ``KERNEL_LEVEL`` for a kernel, and XLA's own for all
    others; a level named in XLA_FLAGS is obeyed.
    """
    options = dict(OPTIONS) if kernel else {}
    level = KERNEL_LEVEL if kernel and level is None else level
    if level is not None and LEVEL not in os.environ.get("XLA_FLAGS", ""):
        options[LEVEL] = level
    return jax.jit(f, compiler_options=options or None, **settings)


def programs(f: Callable[..., Any], **settings: Any) -> dict[bool, Any]:
    """Return f compiled by :func:`outermost` as one kernel, and not."""
    return {kernel: outermost(f, kernel=kernel, **settings) for kernel in (False, True)}


def in_form(form: str, f: Callable[..., Any], *operands: Any) -> tuple[Any, Array | None]:
    """Return ``f(*operands)`` in a form of :mod:`jboost.engine.plan`, and the corners of a kernel.

    The corners are None where it is not one kernel; see :func:`one_kernel`.
    """
    if form == "kernel":
        return one_kernel(f, *operands)
    with written_for("stages" if form == "stages" else "anywhere"):
        return f(*operands), None


def one_kernel(
    f: Callable[..., Any], *operands: Any, changed: tuple[Any, ...] = ()
) -> tuple[Any, Array]:
    """Return ``f(*operands, *changed)`` as one kernel, and the corners: a number of each operand.

    An operand that nothing uses aborts the process inside XLA. So the kernel also returns a corner
    of each operand, and the outermost ``jit`` must return those too. Operands that f certainly uses
    are ``changed``: where f changes them in place, a look at a corner would cost a copy.
    """

    def call(operands: Any, changed: Any) -> Any:
        with written_for("kernel"):
            return f(*operands, *changed), corners(operands)

    # A constant operand counts as unused too; behind the barrier XLA does not know it for one.
    outputs = jax.jit(call)(*jax.lax.optimization_barrier((operands, changed)))
    return as_kernel(outputs)


def corners(operands: Any) -> Array:
    """Return the first number of each array, all in one array: an array more costs a call 10 µs."""
    first = [a[(slice(1),) * jnp.ndim(a)] for a in map(jnp.asarray, jax.tree.leaves(operands))]
    return jnp.concatenate(
        [jnp.zeros(0, jnp.float32), *(jnp.ravel(a).astype(jnp.float32) for a in first)]
    )


def operations(program: Any) -> Iterator[Any]:
    """Yield the operations of a traced program, those of inner programs included."""
    for operation in program.eqns:
        yield operation
        for value in operation.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from operations(inner)


def key_words(key: Key) -> tuple[Array | None, str | None]:
    """Return a key as plain numbers, which a kernel can take, and the name of its generator."""
    if key is None:
        return None, None
    return jax.random.key_data(key), str(jax.random.key_impl(key))


def key_of(words: ArrayLike | None, generator: str | None) -> Array | None:
    """Return the key that :func:`key_words` took apart."""
    return None if words is None else jax.random.wrap_key_data(jnp.asarray(words), impl=generator)


quickly = functools.partial(outermost, level=QUICKEST_LEVEL)
"""``outermost`` for what is done once: unoptimised it compiles in a third of the time."""
