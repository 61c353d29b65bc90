"""Adapters under Ctrl-C, lack of memory and threads: nothing is lost, doubled or broken.

A call that raised has changed nothing. So a caller who repeats every call until it passes gets the
bits of a run in which nothing was raised.
"""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np
import pytest

import jboost as jb
from jboost import adapters
from jboost.adapters import programs

pytest.importorskip("river")
pytest.importorskip("sklearn")
from jboost.adapters import river, sklearn

FOLDER = str(Path(adapters.__file__).parent)
RNG = np.random.default_rng(3)
NLMS = jb.NLMS(step_size=0.5, epsilon=0.0)
DRAWS = jb.boost(NLMS, 3, target_mse=0.1, mode=jb.RandomUpdate(), combiner=jb.NSGD(0.1, 0.01))
ERRORS = (KeyboardInterrupt, MemoryError)
Call = Callable[[Any], Any]


class Interrupted:
    """Raises an error at the n-th event of a kind in the files of a folder."""

    def __init__(self, n: int, error: type[BaseException], kinds: str, folder: str = FOLDER):
        self.left, self.error, self.kinds, self.folder = n, error, kinds, folder

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(self.folder):
            return None
        frame.f_trace_opcodes = "opcode" in self.kinds
        if event in self.kinds.split():
            self.left -= 1
            if self.left == 0:
                raise self.error
        return self.trace


def repeated(adapter: Any, call: Call, kinds: str, learned: str) -> Any:
    """Interrupt a call at its first event, its second one and so on, until it passes.

    ``learned`` names the attribute that holds what the adapter has learned. Between two opcodes, as
    between the last assignment and the return, the call may be done where it raises: Python itself
    interrupts no call there.
    """
    n = 0
    while True:
        n += 1
        before = getattr(adapter, learned)
        try:
            with Interrupted(n, ERRORS[n % 2], kinds):
                return call(adapter)
        except ERRORS:
            if getattr(adapter, learned) is not before:
                assert kinds == "opcode"
                return None


def stream() -> Iterator[Call]:
    """Calls of a river regressor: features that come and go, more than the queue holds, batches."""
    pd = pytest.importorskip("pandas")
    for i in range(40):
        names = "ab" if i < 5 else "abc" if i < 30 else "bde"
        x, y = dict(zip(names, RNG.normal(size=3).tolist(), strict=False)), float(RNG.normal())
        if i % 20 in (3, 7, 8):
            yield lambda regressor, x=x: regressor.predict_one(x)
        yield lambda regressor, x=x, y=y, w=i % 3: regressor.learn_one(x, y, w=w)
    table, ys = pd.DataFrame(RNG.normal(size=(20, 3)), columns=[*"afb"]), RNG.normal(size=20)
    yield lambda regressor: regressor.learn_many(table, ys, w=2.0)
    yield lambda regressor: regressor.predict_many(table).tolist()


def rows() -> Iterator[Call]:
    """Calls of a scikit-learn regressor."""
    for n in (1, 3, 20):
        xs, ds = RNG.normal(size=(n, 2)), RNG.normal(size=n)
        yield lambda regressor, xs=xs, ds=ds: regressor.partial_fit(xs, ds) and None
        yield lambda regressor, xs=xs: regressor.predict(xs).tolist()
    yield lambda regressor: regressor.fit(xs, ds, sample_weight=np.arange(20)) and None
    yield lambda regressor: regressor.partial_fit(xs[:1], ds[:1]) and None


def bits(regressor: Any) -> list[bytes]:
    state = regressor.state_ if hasattr(regressor, "feed_") else regressor._learned.feed.state
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


CASES = {
    "river": (lambda: river.OnlineRegressor(DRAWS, seed=1), stream, "_learned"),
    "sklearn": (lambda: sklearn.OnlineRegressor(DRAWS, random_state=1), rows, "__dict__"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kinds", ["line call", pytest.param("opcode", marks=pytest.mark.slow)])
def test_an_exception_at_every_point(case: str, kinds: str) -> None:
    """Repeat each call, interrupted at each of its lines, and compare with a run in peace."""
    make, calls, learned = CASES[case]
    peaceful, disturbed = make(), make()
    calls = [*calls()]
    expected = [call(peaceful) for call in calls]
    programs.program.cache_clear()  # it is compiled, and interrupted, again
    found = [repeated(disturbed, call, kinds, learned) for call in calls]
    assert found == expected or kinds == "opcode"
    assert bits(disturbed) == bits(peaceful)


# Python ignores, with a warning, what is raised where JAX's objects are let go.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("case", CASES)
def test_an_exception_while_compiling(case: str) -> None:
    """Raised inside JAX, where the program is traced, lowered and compiled, and where it runs."""
    make, calls, _ = CASES[case]
    calls = [call for call, _ in zip(calls(), range(5), strict=False)]
    peaceful, disturbed = make(), make()
    expected = [call(peaceful) for call in calls]
    found = []
    for call in calls:
        n = 1
        while True:
            programs.program.cache_clear()
            try:
                with Interrupted(n, ERRORS[n % 2], "call", folder=""):
                    found.append(call(disturbed))
                break
            except ERRORS:
                n = int(n * 1.9) + 1
    assert found == expected and bits(disturbed) == bits(peaceful)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work(0), work(1) and so on in threads at once, and raise what one of them raised."""
    errors, start = [], threading.Barrier(count)

    def run(i: int) -> None:
        try:
            start.wait()
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]


def test_sixteen_threads_on_a_river_regressor() -> None:
    """Each learns a feature that no other has, so its estimates are those of its stream alone."""
    shared = river.OnlineRegressor(NLMS)
    targets = RNG.normal(size=(16, 40)).tolist()

    def work(i: int) -> None:
        alone = river.OnlineRegressor(NLMS)
        for j, y in enumerate(targets[i]):
            for each in (shared, alone):
                each.learn_one({i: 1.0}, y)
            assert shared.predict_one({i: 1.0}) == alone.predict_one({i: 1.0})
            if j == 20:
                for other in (copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
                    assert other.predict_one({i: 1.0}) == alone.predict_one({i: 1.0})

    in_threads(16, work)


def test_sixteen_threads_on_a_scikit_learn_regressor() -> None:
    shared, unit = sklearn.OnlineRegressor(NLMS), np.eye(16)
    targets = RNG.normal(size=(16, 20))

    def work(i: int) -> None:
        for y in targets[i]:
            shared.partial_fit(unit[i : i + 1], [y])
            assert np.isfinite(shared.predict(unit)).all()

    in_threads(16, work)
    alone = sklearn.OnlineRegressor(NLMS).fit(np.repeat(unit, 20, axis=0), targets.ravel())
    np.testing.assert_array_equal(shared.predict(unit), alone.predict(unit))
    assert (
        pickle.loads(pickle.dumps(shared)).predict(unit).tolist() == shared.predict(unit).tolist()
    )


def test_a_value_that_learns_by_itself() -> None:
    """As the handler of a signal may: a call inside a call of the same regressor is not lost."""
    outer, expected = river.OnlineRegressor(NLMS), river.OnlineRegressor(NLMS)

    class Value:
        calls = 0

        def __float__(self) -> float:
            Value.calls += 1
            if Value.calls == 1:
                outer.learn_one({"a": 2.0}, 3.0)
            return 1.0

    for each in (outer, expected):
        each.learn_one({"a": 1.0}, 1.0)
    expected.learn_one({"a": 2.0}, 3.0)
    expected.learn_one({"a": 1.0}, 5.0)
    outer.learn_one({"a": Value()}, 5.0)
    assert bits(outer) == bits(expected)


@pytest.mark.slow
def test_real_interrupts() -> None:
    """A timer's signal that raises KeyboardInterrupt, as Ctrl-C does, at thousands of instants."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def passes(call: Call, delay: float) -> bool:
        done = False
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                call(disturbed)
                done = True
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
        return done

    (make, calls, _), rounds = CASES["river"], 50
    peaceful, disturbed, calls = make(), make(), [*calls()]
    for call in calls * (rounds + 1):
        call(peaceful)
    for call in calls:  # then nothing is left to compile
        call(disturbed)
    before, interrupts = signal.signal(signal.SIGALRM, interrupt), 0
    gc.disable()  # JAX has code that runs while garbage is collected, where errors are ignored
    try:
        for call in calls * rounds:
            longest = 5e-5
            while not passes(call, RNG.uniform(0, longest)):
                longest, interrupts = 1.2 * longest, interrupts + 1
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 100 and bits(disturbed) == bits(peaceful)
