"""Finds a learner of one class inside a model."""

from typing import TypeVar

from jboost.core.learner import Learner

_Kind = TypeVar("_Kind", bound=Learner)


def within(model: Learner, kind: type[_Kind]) -> _Kind | None:
    """Return the outermost learner of a class within pipelines and wrappers; None without one.

    What it reports is reported by the model.
    """
    inner: object = model
    while isinstance(inner, Learner) and not isinstance(inner, kind):
        inner = getattr(inner, "learner", None)
    return inner if isinstance(inner, kind) else None
