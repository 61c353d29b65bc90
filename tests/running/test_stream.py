"""`run_stream`: the numbers of one run, whatever the blocks, the source and the interruptions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from support import memory

import jboost as jb
from jboost.checkpoints import checkpoint
from jboost.engine import loop, use
from jboost.running.stream import run_stream

KEY = jax.random.key(5)
T = 1200
XS, DS = (np.array(array) for array in jb.streams.duffing(T))
DS[[3, 700]] = np.nan  # two answers that never came
MODELS = {
    "BSGD-RU": jb.bsgd_ru(5, target_mse=0.2, step_size=0.1),
    "BNM-WU": jb.bnm_wu(5, target_mse=0.2, forgetting=0.99, ridge=0.1),
}
RU = MODELS["BSGD-RU"]


@pytest.fixture(scope="module", params=MODELS)
def whole(request: Any) -> Any:
    """A model, and what one run of it leaves."""
    model = MODELS[request.param]
    return model, *jb.run(model, XS, DS, KEY)


@pytest.fixture
def ru() -> Any:
    return jb.run(RU, XS, DS, KEY)


def cut(lengths: Any, xs: Any = XS, ds: Any = DS) -> Any:
    """Blocks of these lengths, then the rest."""
    start = 0
    for length in [*lengths, len(xs)]:
        yield xs[start : start + length], ds[start : start + length]
        start += length


def assert_same(states: Any, others: Any) -> None:
    for one, other in zip(jax.tree.leaves(states), jax.tree.leaves(others), strict=True):
        np.testing.assert_array_equal(one, other)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "jboost-blocks"]


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_any_blocks_give_the_bits_of_one_run(whole: Any, ahead: int) -> None:
    model, state, trace = whole
    lengths = np.random.default_rng(ahead).integers(0, 90, size=20)
    stream = run_stream(model, cut(lengths), KEY, ahead=ahead)
    parts = list(stream)
    np.testing.assert_array_equal(np.concatenate([p.prediction for p in parts]), trace.prediction)
    np.testing.assert_array_equal(np.concatenate([p.skipped for p in parts]), trace.skipped)
    np.testing.assert_array_equal(np.concatenate([p.targets for p in parts]), DS)
    np.testing.assert_array_equal(np.concatenate([p.scored for p in parts]), np.isfinite(DS))
    assert [part.start for part in parts] == [*np.cumsum([0, *lengths[lengths > 0]])]
    assert_same(stream.state, state)
    assert stream.position == T and stream.skipped == 2
    error = (np.asarray(trace.prediction, float) - DS) ** 2
    assert stream.mse == pytest.approx(np.nanmean(error), rel=1e-12)
    squared = np.concatenate([part.squared_errors for part in parts])
    np.testing.assert_array_equal(squared, error[np.isfinite(DS)])
    assert not threads()
    with pytest.raises(StopIteration):
        next(stream)


COMPILED: list[float] = []  # seconds, of all programs, also of those that are not the engine's
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration_secs, **_: (
        COMPILED.append(duration_secs) if "backend_compile" in event else None
    )
)


def programs() -> int:
    """How many programs the engine has compiled for small models."""
    return sum(program.count() for program in loop._programs.values())


@pytest.mark.parametrize("compiled_as", ["auto", "plain"])
def test_a_hundred_lengths_compile_one_program(compiled_as: str) -> None:
    use(compiled_as)
    try:
        xs, ds = (np.asarray(array) for array in jb.streams.duffing(50_000))
        lengths = np.random.default_rng(0).geometric(1 / 200, size=100)
        lengths[50] = 20_000
        model = jb.bsgd_wu(3, target_mse=0.2, step_size=0.05)
        before = programs()
        stream = run_stream(model, cut(lengths, xs, ds)).finish()
        assert stream.position == 50_000
        assert_same(stream.state, jb.run(model, xs, ds)[0])
        total = len(COMPILED)
        for n in (1, 31, 32, 33, 501, 40_000):
            jb.run(model, xs[:n], ds[:n])
        assert programs() - before == 1
        assert len(COMPILED) == total
    finally:
        use("auto")


@pytest.mark.parametrize(("compiled_as", "ahead"), [("auto", 0), ("auto", 1), ("plain", 1)])
def test_after_warming_up_nothing_is_compiled(compiled_as: str, ahead: int, tmp_path: Path) -> None:
    model = jb.bsgd_ru(4, target_mse=0.2, step_size=0.1)
    use(compiled_as)
    try:
        stream = run_stream(model, cut([3, 200]), KEY, ahead=ahead, checkpoint=tmp_path / "c")
        stream.warm_up()
        before = programs()
        stream.warm_up()  # a second time there is nothing to do
        assert stream.position == 0
        blocks = [*stream]
        assert programs() == before
        state, trace = jb.run(model, XS, DS, KEY)
    finally:
        use("auto")
    assert_same(stream.state, state)
    np.testing.assert_array_equal(np.concatenate([b.prediction for b in blocks]), trace.prediction)


def test_an_observer_that_cannot_be_held_weakly_is_planned_for_once(monkeypatch: Any) -> None:
    class Weights(NamedTuple):
        learners: int

        def __call__(self, state: Any, info: Any) -> Any:
            return info.lam[: self.learners]

    plans = []
    length = loop.pieces.length
    monkeypatch.setattr(loop.pieces, "length", lambda *args: plans.append(1) or length(*args))
    stream = run_stream(RU, cut([100, 100]), KEY, observe=Weights(2)).finish()
    assert stream.position == T and len(plans) == 1


@pytest.mark.parametrize("ahead", [0, 1])
def test_warming_up_raises_nothing_of_the_source(ahead: int) -> None:
    def broken() -> Any:
        raise OSError("no such stream")
        yield

    for source, error in ((broken(), OSError), (iter([]), StopIteration)):
        stream = run_stream(RU, source, KEY, ahead=ahead)
        stream.warm_up()
        with pytest.raises(error):
            next(stream)
        stream.warm_up()  # it is over


def test_a_memory_map_is_read_in_blocks(tmp_path: Path, ru: Any) -> None:
    np.save(tmp_path / "xs", XS)
    np.save(tmp_path / "ds", DS)
    maps = tuple(np.load(tmp_path / name, mmap_mode="r") for name in ("xs.npy", "ds.npy"))
    stream = run_stream(RU, maps, KEY, block=500)
    assert [len(part.prediction) for part in stream] == [500, 500, 200]
    assert_same(stream.state, ru[0])


def test_only_the_rows_in_use_are_read() -> None:
    class Disk:
        """What a file on a disk is to NumPy: a shape, and rows when they are asked for."""

        def __init__(self, array: Any):
            self.array, self.shape, self.ndim, self.read = array, array.shape, array.ndim, []

        def __len__(self) -> int:
            return len(self.array)

        def __getitem__(self, rows: slice) -> Any:
            self.read.append((rows.start, rows.stop))
            return self.array[rows]

    xs, ds = Disk(XS), Disk(DS)
    stream = run_stream(RU, (xs, ds), KEY, block=100, ahead=0)
    next(stream), next(stream)
    assert xs.read == ds.read == [(0, 100), (100, 200)]


@pytest.mark.parametrize("source", ["lists", "jax", "pair of jax", "function", "integers"])
def test_sources(source: str, ru: Any) -> None:
    given: Any = {
        "lists": [(XS[:7].tolist(), DS[:7].tolist()), ([], []), (XS[7:], DS[7:])],
        "jax": [(jax.numpy.asarray(XS), jax.numpy.asarray(DS))],
        "pair of jax": (jax.numpy.asarray(XS), jax.numpy.asarray(DS)),
        "function": lambda position: cut([5, 0, 9], XS[position:], DS[position:]),
        "integers": [(np.eye(2, dtype=int), np.array([1, 0]))],
    }[source]
    stream = run_stream(RU, given, KEY).finish()
    state = jb.run(RU, *given[0], KEY)[0] if source == "integers" else ru[0]
    assert_same(stream.state, state)


def test_a_source_may_reuse_its_arrays(ru: Any) -> None:
    def refill() -> Any:
        xs, ds = np.empty((100, 3), np.float32), np.empty(100, np.float32)
        for start in range(0, T, 100):
            xs[:], ds[:] = XS[start : start + 100], DS[start : start + 100]
            yield xs, ds

    assert_same(run_stream(RU, refill(), KEY, ahead=2).finish().state, ru[0])


def test_float64_is_honoured_where_it_is_on(x64: None) -> None:
    xs, ds = XS.astype(float) / 3, DS.astype(float)
    stream = run_stream(RU, (xs, ds), KEY, block=700)
    assert next(stream).prediction.dtype == np.float64
    assert_same(stream.finish().state, jb.run(RU, xs, ds, KEY)[0])
    with pytest.raises(TypeError, match=r"block 1.*one dtype throughout; got float32 after float6"):
        run_stream(RU, [(xs, ds), (XS, DS)], KEY).finish()


def weights(state: Any, info: Any) -> Any:
    return {"w": state.learners[0].w, "lam": info.lam}


def test_observe_is_cut_to_the_block() -> None:
    trace = jb.run(RU, XS, DS, KEY, observe=weights)[1]
    parts = [part.observed for part in run_stream(RU, cut([33, 500]), KEY, observe=weights)]
    assert parts[0]["w"].shape == (33, 5, 3)
    assert_same(jax.tree.map(lambda *a: np.concatenate(a), *parts), trace.observed)


def test_a_state_is_continued_and_stays_usable(ru: Any) -> None:
    half, _ = jb.run(RU, XS[:600], DS[:600], KEY)
    for _ in range(2):
        stream = run_stream(RU, (XS[600:], DS[600:]), KEY, half, block=70).finish()
        assert_same(stream.state, ru[0])


@pytest.mark.parametrize("ahead", [0, 1])
def test_what_a_source_raises_reaches_the_caller(ahead: int) -> None:
    def broken() -> Any:
        yield XS[:100], DS[:100]
        yield XS[100:200], DS[100:200]
        raise OSError("the line is dead")

    stream = run_stream(RU, broken(), KEY, ahead=ahead)
    with pytest.raises(OSError, match="the line is dead") as caught:
        stream.finish()
    assert caught.traceback[-1].name == "broken"
    assert stream.position == 200 and not threads()
    assert_same(stream.state, jb.run(RU, XS[:200], DS[:200], KEY)[0])


def test_the_next_block_is_prepared_meanwhile() -> None:
    """While the caller has a block, the source is asked for more, but not for all."""
    asked = []

    def source() -> Any:
        for i in range(20):
            asked.append(i)
            yield XS[:50], DS[:50]

    with run_stream(RU, source(), KEY, ahead=2) as stream:
        next(stream)
        patience = time.monotonic() + 10
        while len(asked) < 3 and time.monotonic() < patience:
            time.sleep(0.01)
        time.sleep(0.05)
        assert 3 <= len(asked) <= 5  # one in hand, perhaps one begun, two ahead and no more
    assert not threads()


def test_a_slow_source_does_not_hold_back_results() -> None:
    answered = threading.Event()

    def live() -> Any:
        yield XS[:1], DS[:1]
        assert answered.wait(20)
        yield XS[1:2], DS[1:2]

    for part in run_stream(RU, live(), KEY):
        assert len(part.prediction) == 1
        answered.set()


def test_a_run_that_is_not_closed_leaves_no_thread_when_the_process_ends() -> None:
    code = """
import atexit, threading, time
atexit.register(lambda: print([t.name for t in threading.enumerate()]))  # what comes last
from jboost.running.blocks import Ahead

def slow():
    while True:
        time.sleep(0.05)
        yield "block"

left = [Ahead(slow(), 5), Ahead(slow(), 5)]
print(*(ahead.take() for ahead in left))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "block block\n['MainThread']\n"


def test_interrupted_and_resumed_is_uninterrupted(tmp_path: Path, whole: Any) -> None:
    model, state, trace = whole
    path, out = tmp_path / "run", np.full(T, np.nan, np.float32)
    plan = [RuntimeError, KeyboardInterrupt, None, None]
    for attempt, failure in enumerate(plan):
        with (
            pytest.raises(failure) if failure else open(os.devnull),
            run_stream(
                model, cut([77] * 15), KEY, checkpoint=path, every=2, resume=attempt > 0
            ) as stream,
        ):
            assert stream.position == stream.extra.get("rows", 0)
            for count, part in enumerate(stream):
                if failure and count == 3:
                    raise failure
                out[part.start : stream.position] = part.prediction
                stream.extra["rows"] = stream.position
        # The block in hand when it failed was not handled, so the file does not count it.
        kept = checkpoint.read(path)
        handled = [3 * 77, 6 * 77, T, T][attempt]
        assert kept.position == kept.extra["caller"]["rows"] == handled
        assert os.listdir(tmp_path) == ["run"]
    np.testing.assert_array_equal(out, trace.prediction)
    assert_same(checkpoint.read(path).state, state)
    assert stream.skipped == 2
    assert stream.mse == pytest.approx(np.nanmean((out.astype(float) - DS) ** 2), rel=1e-12)


def test_the_file_is_written_every_so_many_blocks(tmp_path: Path) -> None:
    path = tmp_path / "run"
    stream = run_stream(RU, cut([100] * 11), KEY, checkpoint=path, every=3)
    seen = [checkpoint.read(path).position if path.exists() else 0 for _ in stream]
    assert seen == [0, 0, 0, 300, 300, 300, 600, 600, 600, 900, 900, 900]
    assert checkpoint.read(path).position == T


def test_resuming_skips_within_a_block_and_within_arrays(tmp_path: Path, ru: Any) -> None:
    for source in (cut([500]), (XS, DS), lambda position: (XS[position:], DS[position:])):
        path = tmp_path / "run"
        run_stream(RU, (XS[:333], DS[:333]), KEY, checkpoint=path).finish()
        stream = run_stream(RU, source, checkpoint=path, resume=True, block=400)  # its own key
        assert next(stream).start == 333
        assert_same(stream.finish().state, ru[0])
        path.unlink()


KILLED = """
import sys, time
import jax, numpy as np
import jboost as jb
from jboost.running.stream import run_stream
xs, ds = (np.array(a) for a in jb.streams.duffing(1200))
ds[[3, 700]] = np.nan
model = jb.bsgd_ru(5, target_mse=0.2, step_size=0.1)
for part in run_stream(
    model, (xs, ds), jax.random.key(5), block=50, checkpoint=sys.argv[1], every=1, resume=True
):
    print(part.start, flush=True)
    time.sleep(0.02)
"""


def test_killed_and_resumed_is_uninterrupted(tmp_path: Path, ru: Any) -> None:
    path = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": str(Path(jb.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout
        for line in process.stdout:
            if int(line) >= 500:
                break
        process.send_signal(signal.SIGKILL)
    kept = checkpoint.read(path).position
    assert kept is not None and 450 <= kept < T
    stream = run_stream(RU, (XS, DS), KEY, block=50, checkpoint=path, resume=True)
    parts = list(stream)
    assert parts[0].start == kept
    np.testing.assert_array_equal(
        np.concatenate([p.prediction for p in parts]), ru[1].prediction[kept:]
    )
    assert_same(stream.state, ru[0])
    assert os.listdir(tmp_path) == ["run"]


def test_a_failure_to_save_ends_the_run_once(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr("jboost.running.run_file.save", full)
    stream = run_stream(RU, cut([100] * 11), KEY, checkpoint=tmp_path / "run", every=2)
    with pytest.raises(OSError, match="no space") as caught:
        stream.finish()
    assert caught.value.__context__ is None
    assert stream.position == 200 and not threads() and not os.listdir(tmp_path)


X, D = np.ones((4, 2), np.float32), np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: run_stream("auto", (X, D)), TypeError, "model must be a learner"),
        (lambda: run_stream(RU, (X, D)), ValueError, "key is missing"),
        (lambda: run_stream(RU, (X, D), 3), TypeError, "key must be a jax.random.key, .*; got 3"),
        (lambda: run_stream(jb.SGD(0.1), 5), TypeError, "blocks must be an iterable.*got 5"),
        (lambda: run_stream(jb.SGD(0.1), (X, D[:3])), ValueError, "4 rows and 3 targets"),
        (lambda: run_stream(jb.SGD(0.1), (X, X)), ValueError, r"ds must .*got \(4, 2\)"),
        (lambda: run_stream(jb.SGD(0.1), (X, D), block=0), ValueError, "block must be a whole"),
        (lambda: run_stream(jb.SGD(0.1), (X, D), every=0), ValueError, "every must be a whole"),
        (lambda: run_stream(jb.SGD(0.1), (X, D), ahead=-1), ValueError, "ahead must be a whole"),
        (lambda: run_stream(jb.SGD(0.1), (X, D), on_bad="x"), ValueError, "on_bad must be one"),
        (lambda: run_stream(jb.SGD(0.1), (X, D), resume=True), ValueError, "resume=True needs"),
        (
            lambda: run_stream(jb.SGD(0.1), (X, D), state=jb.SGD(0.1).init(3)).finish(),
            ValueError,
            r"state\.w has float32\[3\] where float32\[2\] fits",
        ),
        (
            lambda: run_stream(jb.SGD(0.1), [(X, D), (X[:, :1], D)]).finish(),
            ValueError,
            r"block 1, which begins at row 4: xs must have 2 columns, as before; got shape \(4, 1",
        ),
        (
            lambda: run_stream(jb.SGD(0.1), [(X, D), (X, D), (X, D[:2])]).finish(),
            ValueError,
            "block 2, which begins at row 8: xs and ds must be equally long",
        ),
        (
            lambda: run_stream(jb.SGD(0.1), [(X, D), X]).finish(),
            TypeError,
            r"block 1, which begins at row 4: each of blocks must be a pair \(x, d\)",
        ),
        (
            lambda: run_stream(jb.SGD(0.1), [(X, D), (X * 1j, D)]).finish(),
            TypeError,
            "block 1.*xs must hold real numbers",
        ),
        (
            lambda: run_stream(jb.SGD(0.1), [(X, D), (X, D * [1, 1, np.inf, 1])], on_bad="raise")
            .finish(),
            ValueError,
            "row 6 of the stream holds NaN.*1 such rows in this block",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_a_sentence(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
    assert not threads()


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run_stream(RU, (XS, DS), KEY, checkpoint=path).finish()
    before = path.read_bytes()

    def again(model: Any = RU, source: Any = (XS, DS), key: Any = KEY, resume: bool = True) -> Any:
        return run_stream(model, source, key, checkpoint=path, resume=resume)

    with pytest.raises(FileExistsError, match=r"pass resume=True.*/run'"):
        again(resume=False)
    with pytest.raises(ValueError, match="key must be the one of the run"):
        again(key=jax.random.key(6))
    with pytest.raises(jb.CheckpointError, match="is of another model"):
        again(model=jb.bsgd_ru(5, target_mse=0.3, step_size=0.1))
    for source in ((XS[:9], DS[:9]), [(XS[:9], DS[:9])]):
        with pytest.raises(ValueError, match=f"ends after 9 rows.*had seen {T}"):
            again(source=source).finish()
    with pytest.raises(ValueError, match="state does not belong"):
        again(source=lambda position: (np.ones((4, 2), np.float32), D)).finish()
    with again(), pytest.raises(BlockingIOError, match="Another process"):
        again()
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run"]
    jb.save(path, RU, RU.init(3), KEY)
    with pytest.raises(jb.CheckpointError, match="was not written by run_stream"):
        again()


def test_a_source_without_rows() -> None:
    stream = run_stream(RU, iter([]), KEY).finish()
    assert stream.position == 0 and stream.state is None and np.isnan(stream.mse)


def grown(steps: int) -> float:
    """Megabytes that a long run adds, measured in a fresh process where nothing is free to use."""
    code = f"""
import numpy as np
import jboost as jb
from jboost.running.stream import run_stream
from support.memory import peak
rng = np.random.default_rng(0)
def blocks(n, size=65_536):
    for start in range(0, n, size):
        x = rng.normal(size=(min(size, n - start), 3)).astype(np.float32)
        yield x, x.sum(axis=1)
model = jb.bsgd_wu(20, target_mse=0.2, step_size=0.01)
run_stream(model, blocks(65_536)).finish()
before = peak()
assert run_stream(model, blocks({steps})).finish().position == {steps}
print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | memory.ENVIRONMENT, check=True,
        capture_output=True,
    )  # fmt: skip
    return float(done.stdout)


@pytest.mark.skipif(not memory.TOLD, reason="the system does not tell")
@pytest.mark.parametrize("steps", [600_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_memory_is_constant(steps: int) -> None:
    assert grown(steps) < 100
