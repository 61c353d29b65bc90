"""jboost's models in the clothes of other libraries: ``adapters.sklearn``, ``adapters.river``.

They live by single calls, and half the time of one on a CPU is JAX's way to another thread and
back. So importing them lets JAX compute in the calling thread, for the whole process, unless
something was computed before or the variable ``JAX_CPU_ENABLE_ASYNC_DISPATCH`` says what is wanted.
No number depends on it.
"""

import os

import jax

if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
    jax.config.update("jax_cpu_enable_async_dispatch", False)
