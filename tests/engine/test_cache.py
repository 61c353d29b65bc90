"""The folder of programs that are kept between processes: bounded, cleared, switched off."""

import os

import jax
import pytest

import jboost as jb
from jboost.engine import cache as caches


@pytest.fixture
def settings():
    """The settings of JAX's cache as they were."""
    names = ["jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs",
             "jax_persistent_cache_min_entry_size_bytes"]  # fmt: skip
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_folder_is_bounded_and_can_be_cleared(tmp_path, settings, monkeypatch):
    for number in range(4):
        file = tmp_path / f"{'jit_' if number % 2 else 'kept_'}{number}"
        file.write_bytes(bytes(1000))
        os.utime(file, (number, number))
    (tmp_path / "notes.txt").write_text("not a program")
    monkeypatch.setattr(caches, "LARGEST", 2500)
    assert jb.cache(tmp_path) == tmp_path
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == ["jit_3", "kept_2", "notes.txt"]
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
