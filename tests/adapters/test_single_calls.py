"""Single calls have the digits of a run, also as the compiler optimises."""

import os
import subprocess
import sys

MODELS = ("bsgd_dr", "bnm_wu", "auto")


def test_single_calls_have_the_digits_of_a_run():
    command = [sys.executable, "-m", "tests.support.single_calls", *MODELS]
    env = {**os.environ, "XLA_FLAGS": ""}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == ""
