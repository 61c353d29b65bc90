"""Late answers: by a fixed delay inside a run, and by id in any order."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost as jb
from jboost.wrappers.delayed import Delayed, Pending

KEY = jax.random.key(2)
LEARNERS = {
    "Newton": jb.Newton(0.99, 0.1),
    "bsgd_ru": jb.bsgd_ru(5, target_mse=0.2, step_size=0.1),
    "pipeline": jb.pipeline(jb.Impute(), jb.Scale(), jb.ScaleTarget(jb.NLMS(0.5))),
}


def stream(T=120):
    return tuple(map(np.array, jb.streams.duffing(T)))


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS.keys())
def test_no_delay_is_the_plain_run_bit_for_bit(learner):
    xs, ds = stream()
    state, trace = jb.run(Delayed(learner, 0), xs, ds, KEY)
    plain_state, plain = jb.run(learner, xs, ds, KEY)
    chex.assert_trees_all_equal(state.learner, plain_state)
    chex.assert_trees_all_equal(trace.prediction, plain.prediction)


@pytest.mark.parametrize("name, delay", [*((name, 10) for name in LEARNERS), ("Newton", 1)])
def test_a_prediction_knows_the_answers_up_to_the_delay(name, delay):
    """At t the learner is the plain one after t − delay samples."""
    xs, ds = stream()
    learner = LEARNERS[name]
    _, trace = jb.run(Delayed(learner, delay), xs, ds, KEY)
    predict = jax.jit(learner.predict)
    for t in (0, delay, delay + 1, 60):
        answered = np.where(np.arange(120) < t - delay, ds, np.nan)
        state, _ = jb.run(learner, xs, answered, KEY)
        np.testing.assert_allclose(trace.prediction[t], predict(state, xs[t]), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_learned_does_not_enter():
    xs, ds = stream()
    model = Delayed(jb.Newton(0.99), 7)
    gaps = np.arange(0, 120, 5)
    whole, _ = jb.run(model, np.delete(xs, gaps, 0), np.delete(ds, gaps))
    ds[gaps] = np.nan
    xs[gaps[::2]] = np.inf
    chex.assert_trees_all_close(jb.run(model, xs, ds)[0], whole, rtol=1e-6)


def test_missing_entries_wait_with_their_sample():
    xs, ds = stream()
    xs[np.arange(120) % 4 == 0, 1] = np.nan
    learner = LEARNERS["pipeline"]
    late, _ = jb.run(Delayed(learner, 20), xs, ds)
    soon, _ = jb.run(learner, xs[:100], ds[:100])
    chex.assert_tree_all_finite(late)
    chex.assert_trees_all_close(late.learner, soon, rtol=1e-4, atol=1e-6)


def test_weights_wait_and_repeats_are_that_many_samples():
    model = Delayed(jb.SGD(0.1), 2)
    x = jnp.array([1.0, 2.0])
    state = model.init(2)
    state = model.update(state, x, 1.0, weight=0.5)
    state = model.update(state, x, 5.0, repeats=jnp.int32(0))
    state = model.update(state, x, 3.0, repeats=jnp.int32(2))
    np.testing.assert_allclose(state.learner.w, 0.1 * 0.5 * x, rtol=1e-6)  # the first, at last
    assert state.d.tolist() == [3.0, 3.0]


def test_longer_delays_cost_more():
    xs, ds = stream(2000)
    costs = [float(jb.mse(Delayed(jb.Newton(0.99), n), xs, ds)) for n in (0, 10, 100)]
    assert costs == sorted(costs)


def served(learner, xs, ds, order, capacity=64):
    """Ask all, answer in some order; None asks the next question."""
    service = Pending(learner, capacity)
    state = service.init(xs.shape[1], jnp.float32, key=KEY)
    ask, answer = jax.jit(service.ask), jax.jit(service.answer)
    predictions, asked = [], 0
    for event in order:
        if event is None:
            prediction, state = ask(state, 1000 - asked, xs[asked])
            predictions.append(float(prediction))
            asked += 1
        else:
            state = answer(state, 1000 - event, ds[event], key=KEY)
    return np.array(predictions), state


def test_answered_at_once_it_is_an_ordinary_run():
    xs, ds = stream(30)
    learner = LEARNERS["bsgd_ru"]
    order = [event for t in range(30) for event in (None, t)]
    predictions, state = served(learner, xs, ds, order)
    plain_state, plain = jb.run(learner, xs, ds, KEY)
    np.testing.assert_allclose(predictions, plain.prediction, rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(state.learner, plain_state, rtol=1e-4, atol=1e-5)
    assert not state.open.any() and int(state.dropped) == int(state.unknown) == 0


def test_samples_are_learned_in_the_order_of_their_answers():
    xs, ds = stream(30)
    back = np.random.default_rng(0).permutation(30)
    predictions, state = served(LEARNERS["Newton"], xs, ds, [None] * 30 + [int(t) for t in back])
    assert not predictions.any()
    plain, _ = jb.run(LEARNERS["Newton"], xs[back], ds[back])
    chex.assert_trees_all_close(state.learner, plain, rtol=1e-4, atol=1e-6)


def test_memory_is_bounded_and_what_is_lost_is_counted():
    xs, ds = stream(10)
    _, state = served(jb.SGD(0.1), xs, ds, [None] * 5, capacity=3)
    assert sorted(state.id.tolist()) == [996, 997, 998] and int(state.dropped) == 2
    service = Pending(jb.SGD(0.1), 3)
    late = service.answer(state, 1000, 1.0)  # the oldest, dropped
    chex.assert_trees_all_equal(late, state._replace(unknown=state.unknown + 1))
    open_still = service.answer(state, 997, np.nan)
    chex.assert_trees_all_equal(open_still, state)
    done = service.answer(state, 997, 1.0)
    twice = service.answer(done, 997, 1.0)
    assert int(done.open.sum()) == 2 and int(twice.unknown) == 1
    _, more = service.ask(done, 5, xs[0])  # takes the free row, not that of the oldest
    assert sorted(more.id.tolist()) == [5, 996, 998] and int(more.dropped) == 2
    _, again = service.ask(more, 998, xs[1])  # the same id: its newer question
    assert sorted(again.id.tolist()) == [5, 996, 998] and int(again.dropped) == 3
    row = again.id.tolist().index(998)
    np.testing.assert_array_equal(again.x[row], xs[1])


def test_a_service_is_a_learner_and_is_kept_with_its_open_questions(tmp_path):
    xs, ds = stream(30)
    service = Pending(jb.Newton(0.99), 4)
    state, trace = jb.run(service, xs, ds)
    chex.assert_trees_all_equal(trace.prediction, jb.run(jb.Newton(0.99), xs, ds)[1].prediction)
    _, state = service.ask(state, 3, xs[0])
    jb.save(tmp_path / "service.jboost", service, state)
    model, loaded, _ = jb.load(tmp_path / "service.jboost")
    chex.assert_trees_all_equal(model.answer(loaded, 3, 1.0), service.answer(state, 3, 1.0))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: Delayed(jb.SGD(0.1), -1), "delay must be a whole number >= 0"),
        (lambda: Delayed(jb.SGD(0.1), 1.5), "delay must be a whole number"),
        (lambda: Delayed(3, 1), "learner must be"),
        (lambda: Pending(jb.SGD(0.1), 0), "capacity must be a whole number >= 1"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
