"""How the loop over time is compiled. Nothing else in the library knows of it.

On a CPU a ``lax.scan`` runs as a list of small kernels, and for a small model their dispatch is
nearly all of the time. XLA compiles a call that carries a certain tag as *one* function instead,
which is several times faster; above about a megabyte of state the plain form wins, because its
products use all cores and tiles.

The tag is experimental, so it is used only where all of this holds, and the plain form otherwise:
the library owns the outermost ``jit`` (nothing is traced), the device is a CPU, JAX is of a version
it was tested with, and the program holds only operations known to compile so. Setting the
environment variable ``JBOOST_ENGINE=plain``, or calling ``engine.use("plain")``, turns it off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from jboost.core import checks
from jboost.core.learner import Learner, State
from jboost.core.products import LARGEST_SUM, written_for
from jboost.engine import lanes

log = logging.getLogger("jboost.engine")

# Measured: up to 0.6 MB of state one kernel is the faster one, from 1 MB on not always.
LARGEST_KERNEL = 2**20
FIRST_TESTED = (0, 10)

# What a kernel may hold: element-wise operations, reductions, products, slices and control flow.
# Sorting, scattering, linear algebra, callbacks and the like fail to compile there.
_KNOWN = """
    abs add add_any and argmax argmin atan2 bitcast_convert_type broadcast_in_dim cbrt ceil clamp
    concatenate cond convert_element_type copy copy_p cos cosh cumlogsumexp cummax cummin cumprod
    cumsum custom_jvp_call custom_vjp_call custom_vmap_call div dot_general dynamic_slice
    dynamic_update_slice eq erf erf_inv exp exp2 expand_dims expm1 floor gather ge gt
    integer_pow iota is_finite jit le log log1p logistic lt max min mul ne neg nextafter not or
    pad pjit pow random_bits random_fold_in random_seed random_unwrap random_wrap reduce_and
    reduce_max reduce_min reduce_or reduce_precision reduce_prod reduce_sum rem reshape rev round
    rsqrt scan select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh
    slice split sqrt square squeeze stack stop_gradient sub tan tanh threefry2x32 transpose
    while xor
"""

Scan = Callable[..., Any]


class Plan(NamedTuple):
    """Which form a run takes, why, and how the learners of its boosters lie in memory."""

    form: str
    reason: str
    layouts: lanes.Layouts
    long: bool = False  # more than LONG operations
    unrolled: bool = False  # compiled with more unrolling of loops

    @property
    def skips(self) -> bool:
        """Whether random updates skip what is not drawn."""
        return any(layout.walk == "one by one" for layout in self.layouts)


_wanted = os.environ.get("JBOOST_ENGINE", "auto")
_plans: dict[Any, Plan] = {}
_last: Plan | None = None


def use(form: str) -> None:
    """Choose the form of later runs: "auto" (the default), or "plain" for one ``lax.scan``.

    >>> use("plain")
    >>> use("auto")
    """
    global _wanted
    _wanted = checks.choice("form", form, ("auto", "plain"))


def last() -> Plan | None:
    """The plan of the latest run outside of any transformation."""
    return _last


def fold(
    scan: Scan,
    model: Learner,
    state: State,
    xs: Any,
    ds: Any,
    key: Any,
    observe: Any,
    *,
    traced: bool | None = None,
    donate: bool = False,
) -> tuple[State, Any]:
    """``scan(model, state, xs, ds, key, observe)``, compiled in the form that suits it.

    ``traced`` says whether a transformation runs, where that is known. With ``donate`` a state too
    large for a kernel is changed in place: the caller's is gone.
    """
    global _last
    if traced is None:
        traced = inside_a_transformation(model, state, xs, ds, key)
    if traced:
        return _plain(scan, model, state, xs, ds, key, observe)
    plan = plan_for(scan, model, state, xs, ds, key, observe)
    _last = plan
    log.debug("%s form: %s", plan.form, plan.reason)
    if plan.form == "plain":
        plain = _plain_in_place if donate else _plain
        return plain(scan, model, state, xs, ds, key, observe, plan.layouts)
    kernel = _kernels[plan.unrolled]
    return kernel(scan, model, state, xs, ds, *_words(key), observe, plan.layouts)[0]


def _scanned(
    scan: Scan,
    model: Learner,
    state: State,
    xs: Any,
    ds: Any,
    key: Any,
    observe: Any,
    layouts: lanes.Layouts = (),
) -> tuple[State, Any]:
    model, state = lanes.spread(layouts, model, state)
    state, trace = scan(model, state, xs, ds, key, watched(observe, layouts))
    return lanes.gather(layouts, state), trace


_plain = jax.jit(_scanned, static_argnames=("scan", "observe", "layouts"))
_plain_in_place = jax.jit(
    _scanned, static_argnames=("scan", "observe", "layouts"), donate_argnames=("state",)
)


@partial(jax.jit, static_argnames=("scan", "impl", "observe", "layouts"))
def _call(
    scan: Scan,
    model: Learner,
    state: State,
    xs: Any,
    ds: Any,
    words: Any,
    impl: Any,
    observe: Any,
    layouts: lanes.Layouts,
) -> Any:
    key = None if words is None else jax.random.wrap_key_data(words, impl=impl)
    with written_for("kernel"):
        outputs = scan(model, state, xs, ds, key, watched(observe, layouts))
    # An operand that nothing uses aborts the process inside XLA, so every one is returned.
    return outputs, (_together((model, words)), state, xs[:1], ds[:1])


# Without this option XLA puts fusions into the call that it cannot compile there.
OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}

# At XLA's own level, 3, short loops over the copies are unrolled before they are made vector code,
# and stay one number at a time. Measured with m = 20, one kernel, µs a step at the levels 3 and 2:
# BSGD-WU at r = 3 .19 and .14, BNM-WU .30 and .21, at r = 12 .96 and .84, with the default combiner
# at r = 3 .63 and .43. Not so where the copies are matrices of more columns, up to the size that is
# written as sums: BNM-WU at r = 16 1.7 and 2.6, at r = 21 3.1 and 4.7. Level 2 compiles programs of
# thousands of operations in two thirds of the time.
LEVEL = "xla_backend_optimization_level"
WIDEST_AT_LEVEL_2 = 14


def kernels(f: Callable[..., Any], **static: Any) -> dict[bool, Any]:
    """f as the outermost ``jit`` around a kernel; by whether more loops are to be unrolled.

    Who names a level in XLA_FLAGS gets that one.
    """
    named = LEVEL in os.environ.get("XLA_FLAGS", "")
    return {
        unrolled: jax.jit(
            f, compiler_options=OPTIONS if named else OPTIONS | {LEVEL: level}, **static
        )
        for unrolled, level in ((False, 2), (True, 3))
    }


def _is_unrolled(state: State) -> bool:
    """Whether it holds copies of matrices that are wide, but still written as sums."""
    sides = [leaf.shape[-1] for leaf in jax.tree.leaves(state) if leaf.ndim > 2]
    return any(WIDEST_AT_LEVEL_2 < side <= LARGEST_SUM for side in sides)


def _in_one_kernel(
    scan: Scan,
    model: Learner,
    state: State,
    xs: Any,
    ds: Any,
    words: Any,
    impl: Any,
    observe: Any,
    layouts: lanes.Layouts,
) -> Any:
    from jax.experimental.xla_metadata import set_xla_metadata

    # Outside of the call: inside, XLA would choose a layout that undoes the rearrangement.
    model, state = lanes.spread(layouts, model, state)
    outputs = _call(scan, model, state, xs, ds, words, impl, observe, layouts)
    tagged: Any = set_xla_metadata(outputs, xla_cpu_small_call="true", inlineable="false")
    (state, trace), corners = tagged
    return (lanes.gather(layouts, state), trace), corners


_kernels = kernels(_in_one_kernel, static_argnames=("scan", "impl", "observe", "layouts"))
LONG = 3000  # operations: from about here on to compile takes many seconds


def one_kernel(f: Callable[..., Any], *operands: Any, changed: tuple[Any, ...] = ()) -> Any:
    """``f(*operands, *changed)`` as one kernel, and corners: for the loops of other modules.

    The outermost ``jit`` is the library's own, has OPTIONS, and returns the corners too, one of
    each operand, because one that nothing uses aborts the process inside XLA. What f certainly
    uses and changes in place is ``changed``: a look at a corner of it would cost a copy. A plan
    must have said that f can be a kernel.
    """
    from jax.experimental.xla_metadata import set_xla_metadata

    def call(operands: Any, changed: Any) -> Any:
        corners = jax.tree.map(lambda a: a[(slice(1),) * jnp.ndim(a)], operands)
        with written_for("kernel"):
            return f(*operands, *changed), corners

    # A constant operand counts as unused too; behind the barrier XLA does not know it for one.
    outputs = jax.jit(call)(*jax.lax.optimization_barrier((operands, changed)))
    return set_xla_metadata(outputs, xla_cpu_small_call="true", inlineable="false")


def _together(operands: Any) -> Array:
    """All numbers of small operands in one array: an array more costs a call 10 µs."""
    leaves = [jnp.ravel(jnp.asarray(a)).astype(jnp.float32) for a in jax.tree.leaves(operands)]
    return jnp.concatenate(leaves) if leaves else jnp.zeros(0)


def watched(observe: Any, layouts: lanes.Layouts) -> Any:
    """``observe`` on the state as its model makes it, however it lies during the run."""
    if observe is None or not layouts:
        return observe

    def watch(state: State, info: Any) -> Any:
        return observe(lanes.gather(layouts, state), info)

    return watch


def _words(key: Any) -> tuple[Any, Any]:
    """A key as plain numbers and the name of its generator."""
    if key is None:
        return None, None
    return jax.random.key_data(key), str(jax.random.key_impl(key))


def inside_a_transformation(*arguments: Any) -> bool:
    # With concrete arguments a user's jit still shows in what an operation returns.
    return any(isinstance(leaf, Tracer) for leaf in (_zero(), *jax.tree.leaves(arguments)))


_zero = jax.jit(lambda: jnp.zeros(()))  # compiled, it costs a call 5 µs


def plan_for(
    scan: Scan, model: Learner, state: State, xs: Any, ds: Any, key: Any, observe: Any
) -> Plan:
    """Look once at each structure of model and state."""
    leaves, structure = jax.tree.flatten((model, state))
    shapes = tuple((getattr(a, "shape", ()), getattr(a, "dtype", float)) for a in leaves)
    double = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    seen = (_wanted, structure, shapes, xs.dtype, observe, double)
    if seen not in _plans:
        form, reason, long = _form(scan, model, state, xs, ds, key, observe)
        layouts = lanes.choose(model, state, kernel=form == "kernel")
        _plans[seen] = Plan(form, reason, layouts, long, not long and _is_unrolled(state))
    return _plans[seen]


def _form(
    scan: Scan, model: Learner, state: State, xs: Any, ds: Any, key: Any, observe: Any
) -> tuple[str, str, bool]:
    if _wanted == "plain":
        return "plain", "the fast form is switched off", False
    platforms = {device.platform for device in xs.devices()}
    if platforms != {"cpu"}:
        return "plain", f"the stream lies on {', '.join(sorted(platforms))}", False
    if jax.__version_info__ < FIRST_TESTED:
        return "plain", f"one kernel is not tested with jax {jax.__version__}", False
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return "plain", "jit is disabled", False
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    if size > LARGEST_KERNEL:
        return "plain", f"a state of {size:,} bytes is more than one kernel is good for", False
    layouts = lanes.choose(model, state, kernel=True)
    program = _kernels[False].trace(scan, model, state, xs, ds, *_words(key), observe, layouts)
    known = {*_KNOWN.split(), "xla_metadata_value"}
    operations = [*_primitives(program.jaxpr.jaxpr)]
    unknown = {*operations} - known
    if unknown:
        return "plain", f"not known to compile as one kernel: {', '.join(sorted(unknown))}", False
    return "kernel", f"a state of {size:,} bytes in one kernel", len(operations) > LONG


def _primitives(jaxpr: Any) -> Iterator[str]:
    """The names of all operations of a program, inner programs included."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(value):
                yield from _primitives(getattr(value, "jaxpr", value))


def _is_program(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")
