"""Programs that are kept between processes: found again, bounded, and harmless when damaged."""

import os
import subprocess
import sys

import jax
import pytest

import jboost as jb
from jboost.engine import cache as caches

RUN = """
import jax, numpy as np, jboost as jb
from jax._src import monitoring
counts = {}
def count(event, **_):
    counts[event] = counts.get(event, 0) + 1
monitoring.register_event_listener(count)
jb.cache()
xs, ds = jb.streams.duffing(300)
model = jb.bnm_wu(5, target_mse=0.1, forgetting=0.99, ridge=0.1)
prediction = np.asarray(jb.run(model, np.asarray(xs), np.asarray(ds))[1].prediction)
hits = counts.get("/jax/compilation_cache/cache_hits", 0)
print(hits, prediction.tobytes().hex()[-64:])
"""


def run_in_a_process(folder):
    env = {**os.environ, "JBOOST_CACHE": str(folder)}
    done = subprocess.run([sys.executable, "-c", RUN], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    hits, bits = done.stdout.split()
    return int(hits), bits


@pytest.fixture
def settings():
    """The settings of JAX's cache as they were."""
    names = ["jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs",
             "jax_persistent_cache_min_entry_size_bytes"]  # fmt: skip
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_later_process_compiles_nothing_and_predicts_the_same_bits(tmp_path):
    folder = tmp_path / "programs"
    hits, bits = run_in_a_process(folder)
    kept = list(folder.glob("jit_*"))
    assert hits == 0 and kept
    assert run_in_a_process(folder) == (len(kept), bits)
    for file in kept:  # damaged: half of it is gone
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    hits, again = run_in_a_process(folder)
    assert again == bits
    assert run_in_a_process("off")[1] == bits


def test_the_folder_is_bounded_and_can_be_cleared(tmp_path, settings, monkeypatch):
    for number in range(4):
        file = tmp_path / f"jit_program_{number}-cache"
        file.write_bytes(bytes(1000))
        os.utime(file, (number, number))
    (tmp_path / "notes.txt").write_text("not a program")
    monkeypatch.setattr(caches, "LARGEST", 2500)
    assert jb.cache(tmp_path) == tmp_path
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == ["jit_program_2-cache", "jit_program_3-cache", "notes.txt"]
    jb.cache(tmp_path, clear=True)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_it_can_be_switched_off_and_leaves_the_folder_of_a_user(tmp_path, settings, monkeypatch):
    monkeypatch.setenv(caches.VARIABLE, "off")
    assert jb.cache() is None
    monkeypatch.delenv(caches.VARIABLE)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert jb.cache() == tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    jax.config.update("jax_compilation_cache_dir", None)
    assert jb.cache() == tmp_path / "home" / "jboost" / "programs"
    assert jb.cache("off") is None and jax.config.jax_compilation_cache_dir is None


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path, settings):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="compiled programs are not kept"):
        assert jb.cache(tmp_path / "file" / "programs") is None
