"""Importing the library changes no setting of JAX; the adapters change one when asked to."""

import subprocess
import sys
from pathlib import Path

import pytest

import jboost as jb
from jboost.core.extras import MissingExtra

# A module of an extra that is not installed says so, and is left out.
IMPORTS = f"""
import importlib, jax, pkgutil
before = dict(jax.config.values)
import jboost
for module in pkgutil.walk_packages(jboost.__path__, "jboost."):
    if module.name != "jboost.__main__":
        try:
            importlib.import_module(module.name)
        except jboost.core.extras.{MissingExtra.__name__}:
            pass
"""
UNCHANGED = """
import sys
names = ("jboost.adapters", "jboost.adapters.feed", "jboost.cli", "jboost.engine.kernel")
assert {*names} <= {*sys.modules}
changed = {name for name in before if jax.config.values[name] != before[name]}
assert not changed and dict(jax.config.values).keys() == before.keys(), changed
"""
ASKED = """
jboost.adapters.compute_in_calling_thread()
from jboost.adapters.feed import Feed
feed = Feed(jboost.NLMS(step_size=1.0, epsilon=0.0), 1).learn([1.0], 3.0)
assert feed.predict([2.0]) == 6.0 and not jax.config.values["jax_cpu_enable_async_dispatch"]
"""


@pytest.mark.parametrize("check", [UNCHANGED, ASKED], ids=["unchanged", "asked for"])
def test_settings_of_jax(check: str) -> None:
    command, root = [sys.executable, "-c", IMPORTS + check], Path(jb.__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
