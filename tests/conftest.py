"""Settings under which every test runs, and what the tests share."""

import gc
import importlib.util
import os

from jaxlib.version import __version_info__ as jaxlib_version

# Tests run for a few steps: what takes time is to compile, and the second flag saves 40 % of it.
# CI's experiments, its demo and the core tests on the oldest versions run as users do. It must be
# set before JAX is first used, and ends the process where a release does not know a flag.
FLAGS = ["--xla_backend_optimization_level=0"]
if jaxlib_version[:2] == (0, 10):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
os.environ["JBOOST_CACHE"] = "off"  # of the user's; tests of the cache have folders of their own

import jax
import pytest
from hypothesis import settings
from support import memory

settings.register_profile("jboost", derandomize=True, deadline=None, database=None, max_examples=20)
settings.load_profile("jboost")

# The library must not lean on implicit promotion: a user may have forbidden it.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


LARGEST_PROCESS = 1000  # MB; the tests of a laptop stay below 2 GB a process


def pytest_runtest_teardown():
    """Let go of compiled programs when they have filled the memory: few are used again."""
    if memory.held() > LARGEST_PROCESS:
        jax.clear_caches()
        gc.collect()
        memory.give_back()


EXTRAS = ("matplotlib", "narwhals", "pyarrow", "river", "sklearn", "starlette", "uvicorn")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fail a test module that cannot be imported: looking for doctests, pytest would skip it."""
    report = yield
    all_extras = all(importlib.util.find_spec(name) for name in EXTRAS)
    if report.skipped and all_extras and "tests/" in report.nodeid:
        path, _, reason = report.longrepr
        if "unable to import module" in reason:
            report.outcome, report.longrepr = "failed", f"{path}: {reason}"
    return report


BEGINNINGS = {}  # of the generators that modules of tests draw from


@pytest.fixture(autouse=True)
def same_draws(request):
    """What a test draws from its module's RNG does not depend on the tests that ran before."""
    rng = getattr(getattr(request.node, "module", None), "RNG", None)
    if rng is not None:
        rng.bit_generator.state = BEGINNINGS.setdefault(id(rng), rng.bit_generator.state)


@pytest.fixture
def x64():
    """float64 for the length of a test."""
    before = jax.config.jax_enable_x64  # it may be on for all of them
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
