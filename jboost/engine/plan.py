"""Which form a run is compiled in: one kernel, stages that are kernels, or a plain scan.

Kernels are used only where all of this holds: the library owns the outermost ``jit`` (nothing is
traced), the device is a CPU, JAX is of a version they were tested with, and the program holds only
operations known to compile so. The run is one kernel if the state is below about a megabyte. Above
that a model with stages runs as a loop over these, each of them a kernel. For other models the
plain form wins there, because its products use all cores and tiles. Setting the environment
variable ``JBOOST_ENGINE=plain``, or calling ``jboost.engine.use("plain")``, turns kernels off.
"""

import functools
import logging
import math
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state

from jboost.core import State, checks
from jboost.core.products import LARGEST_CHOICE
from jboost.engine.kernel import POSSIBLE, TAG, operations
from jboost.engine.layout import Layout

log = logging.getLogger("jboost.engine")

# Measured: up to 0.6 MB of state one kernel is the faster one, from 1 MB on not always.
LARGEST_KERNEL = 2**20  # bytes
# The versions of JAX that the kernel tests passed with; a later one could abort the process.
FIRST_TESTED, LAST_TESTED = (0, 10, 0), (0, 10, 2)
# XLA divides work on a stack of matrices of this size between cores, whatever the options say, if
# the matrices are so wide that they are changed in one pass. A kernel with such work fails to load.
DIVIDED = 2**19  # bytes
FEWEST_COLUMNS = 16  # of both factors of a product that is slow in a kernel
MOST_PLANS = 256  # plans that are remembered

CHOICES = ("auto", "plain")
_choice = os.environ.get("JBOOST_ENGINE", "auto")  # checked when a run is planned


Form = Literal["kernel", "stages", "plain"]


class Plan(NamedTuple):
    """How a run is compiled."""

    form: Form
    reason: str  # why, in words
    layout: Layout = Layout()  # how model and state lie in memory meanwhile
    rows: int = 0  # how many rows the program has room for; see `pieces`


def check() -> None:
    """Refuse a value of the environment variable ``JBOOST_ENGINE`` that is no form of a run."""
    checks.choice("JBOOST_ENGINE", _choice, CHOICES)


def use(form: str) -> None:
    """Choose the form of later runs: "auto" (the default), or "plain" for one ``lax.scan``.

    >>> use("plain")
    >>> use("auto")
    """
    global _choice
    _choice = checks.choice("form", form, CHOICES)


def inside_a_transformation(*arguments: Any) -> bool:
    """Return whether a transformation such as ``jit``, ``vmap`` or ``grad`` runs around the call.

    With concrete arguments a user's jit still shows in what an operation returns.
    """
    return _inside_jit() or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments))


def _inside_jit() -> bool:
    # The first question takes 0.2 µs, the second one 40 µs. Not by jnp.zeros, which compiles a
    # program: a process whose programs are kept compiles none.
    if get_opaque_trace_state() == _AT_REST:
        return False
    return isinstance(jax.device_put(_ZERO), Tracer)


_AT_REST = get_opaque_trace_state()  # equal to none but itself, if a trace imports this module
_ZERO = np.zeros((), np.float32)


def objection(platforms: set[str]) -> str | None:
    """Return why a run cannot use kernels, before its program is looked at."""
    check()
    if _choice == "plain":
        return "the fast form is switched off"
    if platforms != {"cpu"}:
        return f"the stream lies on {', '.join(sorted(platforms))}"
    if not FIRST_TESTED <= jax.__version_info__[:3] <= LAST_TESTED:
        return _warn_of_version()
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return "jit is disabled"
    return None


def form_for(size: int) -> Form:
    """Return the form to try for a state of so many bytes."""
    return "kernel" if size <= LARGEST_KERNEL else "stages"


def impediment(program: Any, form: Form, size: int) -> str | None:
    """Return why a program that was traced in a form has to be a plain scan; None if it need not.

    ``size`` is how many bytes the program carries from step to step.
    """
    found = [*operations(program.jaxpr.jaxpr)]
    names = {operation.primitive.name for operation in found}
    impossible = names - POSSIBLE
    if form == "stages" and TAG not in names:
        return f"a state of {size:,} bytes is more than one kernel is good for"
    if impossible:
        return f"not known to compile as one kernel: {', '.join(sorted(impossible))}"
    if any(map(_multiplies_matrices, found)):
        return "it multiplies matrices, which a kernel does slowly"
    largest = max(map(_largest_stack, found), default=0)
    if largest >= DIVIDED:
        return f"XLA divides work on {largest:,} bytes, which a kernel cannot do"
    return None


def planned(form: Form, size: int, layout: Layout) -> Plan:
    """Return the plan for a program that nothing keeps from its form."""
    if form == "stages":
        return Plan(form, f"a state of {size:,} bytes, and each stage a kernel", layout)
    return Plan(form, f"a state of {size:,} bytes in one kernel", layout)


def _multiplies_matrices(operation: Any) -> bool:
    """Return whether an operation is a product of two large matrices."""
    if operation.primitive.name != "dot_general":
        return False
    (contracted, _), (batch, _) = operation.params["dimension_numbers"]
    left, right = (math.prod(operand.aval.shape) for operand in operation.invars)
    shape = operation.invars[0].aval.shape
    inner = math.prod(shape[axis] for axis in (*contracted, *batch))
    return min(left, right) // inner >= FEWEST_COLUMNS


def _largest_stack(operation: Any) -> int:
    """Return the bytes of the largest stack of wide matrices that an operation computes."""
    shapes = ((result.aval, getattr(result.aval, "shape", ())) for result in operation.outvars)
    wide = (aval for aval, shape in shapes if len(shape) >= 3 and shape[-1] > LARGEST_CHOICE)
    return max((aval.size * aval.dtype.itemsize for aval in wide), default=0)


def bytes_of(state: State) -> int:
    """Return how many bytes a state takes."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(state))


class Plans:
    """The plans made so far, by all that they depend on. The oldest are forgotten.

    The function that a user gave is held weakly: its closure may hold much memory.
    """

    def __init__(self) -> None:
        self._by_function: weakref.WeakKeyDictionary[Any, OrderedDict[Any, Plan]] = (
            weakref.WeakKeyDictionary()
        )
        self._without: OrderedDict[Any, Plan] = OrderedDict()

    def get(
        self, function: Any, operands: Any, others: tuple[Any, ...], make: Callable[[], Plan]
    ) -> Plan:
        """Return the plan for a function and operands like these, made where there is none yet."""
        plans = self._without
        try:
            if function is not None:
                plans = self._by_function.setdefault(function, OrderedDict())
        except TypeError:  # it cannot be held weakly, as a named tuple, or not be compared
            if not isinstance(function, Hashable):
                return make()
            others = (function, *others)
        leaves, structure = jax.tree.flatten(operands)
        shapes = tuple((getattr(a, "shape", ()), getattr(a, "dtype", float)) for a in leaves)
        double = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
        seen = (_choice, structure, shapes, double, *others)
        if seen not in plans:
            plans[seen] = make()
            if len(plans) > MOST_PLANS:
                plans.popitem(last=False)
        return plans[seen]


@functools.cache  # once a process
def _warn_of_version() -> str:
    reason = f"one kernel is not tested with jax {jax.__version__}"
    first, last = (".".join(map(str, version)) for version in (FIRST_TESTED, LAST_TESTED))
    log.warning("%s, but from %s to %s: runs take the slower plain form", reason, first, last)
    return reason
