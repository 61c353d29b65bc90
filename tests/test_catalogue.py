"""Models by name: what is accepted, and what the messages say."""

import pytest

import jboost as jb
from jboost import catalogue


def test_resolve():
    learner = jb.SGD(0.1)
    assert catalogue.resolve(learner) is learner
    assert repr(catalogue.resolve(None)) == repr(catalogue.named(catalogue.DEFAULT))
    assert repr(catalogue.resolve("sgd")) == repr(catalogue.named("sgd"))
    inside = catalogue.resolve("sgd", intervals=0.9)
    assert isinstance(inside, jb.Intervals) and inside.coverage == 0.9


def test_texts_are_read_as_numbers():
    model = catalogue.named("bsgd_dr", {"m": "3", "max_reuse": "2", "step_size": "0.5"})
    assert model.learner.learner.m == 3 and model.learner.learner.mode.max_reuse == 2


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: catalogue.resolve(3), TypeError, "model must be a learner such as .* got 3"),
        (lambda: catalogue.resolve("sgdd"), ValueError, "no model 'sgdd'; did you mean 'sgd'"),
        (
            lambda: catalogue.resolve("xyz"),
            ValueError,
            "no model 'xyz'; there are auto, auto_small, auto_large, sgd",
        ),
        (
            lambda: catalogue.resolve(jb.Intervals(jb.Newton(0.99), 0.9), intervals=0.8),
            ValueError,
            "has intervals already; got intervals=0.8",
        ),
        (
            lambda: catalogue.named("sgd", {"m": 3}),
            ValueError,
            "sgd has no setting 'm'; it has step_size",
        ),
        (
            lambda: catalogue.named("bsgd_wu", {"m": "2.5"}),
            ValueError,
            "m must be a whole number; got '2.5'",
        ),
        (
            lambda: catalogue.named("bsgd_wu", {"m": 2.5}),
            ValueError,
            "m must be a whole number; got 2.5",
        ),
        (
            lambda: catalogue.named("sgd", {"step_size": "fast"}),
            ValueError,
            "step_size must be a number; got 'fast'",
        ),
    ],
)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
