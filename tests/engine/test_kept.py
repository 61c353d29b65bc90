"""Whole programs kept between processes: found again without a trace, and never a wrong one."""

import functools
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import jboost as jb
from jboost.engine import cache as caches
from jboost.engine import descriptions, executables, kept, loop, start
from jboost.engine.descriptions import NotDescribedError

pytestmark = pytest.mark.skipif(not executables.KNOWN, reason="kept with tested versions of JAX")

RUN = """
import jax, numpy as np, jboost as jb
{before}
counts = {{"traced": 0, "compiled": 0}}
def count(event, *_, **__):
    counts["traced"] += event == "/jax/core/compile/jaxpr_trace_duration"
    counts["compiled"] += event == "/jax/core/compile/backend_compile_duration"
jax.monitoring.register_event_duration_secs_listener(count)
jb.cache()
xs, ds = (np.asarray(a) for a in np.random.default_rng(0).normal(size=(2, 300)))
model = {model}
state, trace = jb.run(model, xs[:, None], ds)
found = counts["traced"], counts["compiled"]
state, more = jb.run(model, xs[:200, None], ds[:200], state=state)
numbers = b"".join(np.asarray(a).tobytes() for a in jax.tree.leaves((state, trace, more)))
import hashlib
print(*found, hashlib.sha256(numbers).hexdigest())
"""
BOOSTED = "jb.bnm_wu(5, target_mse=0.1, forgetting=0.99, ridge=0.1)"
NOTHING = (0, 0)


def command_and_environment(folder, model=BOOSTED, before=""):
    env = {**os.environ, "JBOOST_CACHE": str(folder)}
    return [sys.executable, "-c", RUN.format(model=model, before=before)], env


def run_in_a_process(folder, model=BOOSTED, before=""):
    """Return how many programs a process traced and compiled, and a digest of its numbers."""
    command, env = command_and_environment(folder, model, before)
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    traced, compiled, digest = done.stdout.split()
    return (int(traced), int(compiled)), digest


def test_a_later_process_traces_nothing_and_computes_the_same_bits(tmp_path):
    folder = tmp_path / "programs"
    (traced, compiled), numbers = run_in_a_process(folder)
    assert traced and compiled
    assert run_in_a_process(folder) == (NOTHING, numbers)
    entries = [*folder.glob("kept_*")]
    for entry in entries:  # damaged: a byte is another
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 1
        entry.write_bytes(content)
    counts, again = run_in_a_process(folder)
    assert counts == (traced, compiled) and again == numbers
    for entry in entries:  # cut, as by a full disk
        entry.write_bytes(entry.read_bytes()[:40])
    assert run_in_a_process(folder)[1] == numbers
    assert run_in_a_process(folder) == (NOTHING, numbers)
    other = "jax.config.update('jax_default_matmul_precision', 'highest')"
    assert run_in_a_process(folder, before=other)[0] != NOTHING
    assert run_in_a_process("off") == ((traced, compiled), numbers)


def test_two_processes_may_fill_the_folder_at_once(tmp_path):
    command, env = command_and_environment(tmp_path)
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    numbers = {process.communicate()[0].split()[2] for process in both}
    assert len(numbers) == 1
    assert run_in_a_process(tmp_path) == (NOTHING, *numbers)
    assert not [file for file in tmp_path.iterdir() if "-cache" not in file.name
                and len(file.name.rpartition("-")[2]) != 64]  # fmt: skip


def test_the_class_of_a_user_may_change_between_processes(tmp_path):
    source = """
@jb.model
class Constant(jb.Learner):
    value: float = 1.0
    def init(self, num_features, dtype=None, *, key=None):
        return jax.numpy.zeros((), dtype)
    def predict(self, state, x):
        return state + {added}
    def learn(self, state, sample):
        return state
"""
    found = [
        run_in_a_process(tmp_path, "Constant()", source.format(added=added)) for added in (1, 2, 1)
    ]
    assert found[0][1] == found[2][1] != found[1][1]
    assert not [*tmp_path.glob("kept_*")]


@pytest.fixture
def folder(tmp_path):
    names = ["jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs",
             "jax_persistent_cache_min_entry_size_bytes"]  # fmt: skip
    before = {name: getattr(jax.config, name) for name in names}
    jb.cache(tmp_path)
    yield tmp_path
    jb.cache("off")
    for name, value in before.items():
        jax.config.update(name, value)


def times(a, factor):
    return a * factor


_doubled = kept.Kept(jax.jit(times, static_argnames="factor"), times, ("factor",))


@pytest.fixture
def of_the_library(monkeypatch):
    """Make the function above one of the library's."""
    monkeypatch.setattr(times, "__module__", "jboost.engine.kept")
    monkeypatch.setattr(kept, "times", times, raising=False)


@pytest.mark.usefixtures("of_the_library")
def test_another_source_version_or_setting_is_another_program(folder, monkeypatch):
    def name():
        kept._fixed.cache_clear()
        return _doubled._name_of((np.ones(3, np.float32), 2))

    first = name()
    assert name() == first
    for what, value in ((jax, "9.9.9"), (np, "9.9.9")):
        with monkeypatch.context() as patch:
            patch.setattr(what, "__version__", value)
            assert name() != first
    with monkeypatch.context() as patch:
        patch.setattr(kept, "_source", lambda: "other")
        assert name() != first
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        assert name() != first
    with jax.default_matmul_precision("highest"):
        assert name() != first
    with monkeypatch.context() as patch:  # the source has changed since it was imported
        patch.setattr(kept, "_begun", 0.0)
        with pytest.raises(NotDescribedError):
            name()
    assert name() == first


@pytest.mark.usefixtures("of_the_library", "folder")
def test_arguments_on_which_the_program_depends_are_told_apart():
    row = np.ones(3, np.float32)
    names = {
        _doubled._name_of((row, 2)),
        _doubled._name_of((row, 2.0)),
        _doubled._name_of((row.astype(np.int32), 2)),
        _doubled._name_of((row[:2], 2)),
        _doubled._name_of(((row,), 2)),
        _doubled._name_of((1.0, 2)),
        _doubled._name_of((np.float32(1.0), 2)),
    }
    assert len(names) == 7


@pytest.mark.usefixtures("of_the_library")
def test_a_partial_is_kept_and_arguments_of_one_kind_are_looked_at_once(folder, monkeypatch):
    def kept_of(factor):
        partial = functools.partial(times, factor=factor)
        return kept.Kept(jax.jit(partial), partial, ())

    row, program = np.ones(3, np.float32), kept_of(2)
    call = program.for_one_kind()
    assert call(row).tolist() == [2.0] * 3
    monkeypatch.setattr(program, "_program_for", lambda _: pytest.fail("they are looked at"))
    assert call(row + 1).tolist() == [4.0] * 3
    assert kept_of(3)(row).tolist() == [3.0] * 3
    assert len([*folder.glob("kept_times-*")]) == 2
    again = kept_of(2)
    monkeypatch.setattr(again, "_make", lambda _: pytest.fail("it is compiled"))
    assert again.for_one_kind()(row).tolist() == [2.0] * 3


def test_an_entry_that_can_be_read_but_not_loaded_is_compiled_again(folder):
    model = jb.NLMS(step_size=0.125, epsilon=0.5)
    xs, ds = np.random.default_rng(1).normal(size=(2, 50))
    expected = jb.run(model, xs[:, None], ds)[1].prediction
    entries = [file.name for file in folder.glob("kept_*")]
    assert entries
    for entry in entries:
        data, program = kept.read(entry) or ({}, b"")
        if program:
            kept.write(entry, data | {"tree": ["os.system", None, [["none"]]]}, program[:100])
    jax.clear_caches()
    for one in (*start._programs.values(), *loop._programs.values()):
        one._found.clear()
    found = jb.run(model, xs[:, None], ds)[1].prediction
    assert np.array_equal(expected, found)


def test_the_cache_can_be_cleared_and_switched_off_in_a_process(folder):
    xs, ds = np.ones((50, 7)), np.ones(50)
    jb.run(jb.SGD(0.1), xs, ds)
    assert [*folder.glob("kept_*")] and caches.current() == str(folder)
    jb.cache(folder, clear=True)
    assert not [*folder.iterdir()]
    jb.cache("off")
    jb.run(jb.SGD(0.1), xs[:, :5], ds)
    assert caches.current() is None and not [*folder.iterdir()]


@pytest.mark.parametrize("value", [lambda x: x, np.ones(2), object(), RUN.join, {1, 2}])
def test_what_is_not_plain_has_no_description(value):
    with pytest.raises(NotDescribedError):
        descriptions.of_value(value)


@pytest.mark.parametrize("described", [["os.system", None, [["none"]]],
                                       ["subprocess.Popen", None, [["none"]]]])  # fmt: skip
def test_a_description_makes_only_named_tuples(described):
    with pytest.raises(NotDescribedError):
        descriptions.tree_of(described, iter([]))
