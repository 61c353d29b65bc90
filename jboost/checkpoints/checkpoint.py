"""Saves a model, its state and its key in one file, from which a run goes on bit for bit.

A state is stored as the list of its leaves. It is rebuilt on the structure that the model's
``init`` gives it, so that a file can only become a state of the model it names.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax

from jboost.checkpoints import archive
from jboost.checkpoints.archive import CheckpointError
from jboost.checkpoints.atomic import PathLike, replacing
from jboost.checkpoints.description import (
    Store,
    describe,
    difference,
    rebuild,
    refuse_deep,
    refuse_narrowing,
)
from jboost.core import Key, Learner, State, checks
from jboost.core.guards import mismatch
from jboost.core.learner import instance
from jboost.core.template import size_of, template

LARGEST_POSITION = 2**63 - 1


class Checkpoint(NamedTuple):
    """The contents of a file."""

    model: Learner
    state: State  # of the model
    key: Key  # of the run; None if none was saved
    position: int | None  # how many samples the state has seen; None if that was not saved
    extra: dict[str, Any]  # the dict that was saved with the rest


def save(
    path: PathLike,
    model: Learner,
    state: State,
    key: Key = None,
    *,
    position: int | None = None,
    extra: Mapping[str, Any] | None = None,
    num_features: int | None = None,
    supply_model: bool = False,
) -> None:
    """Write a model, its state and the key of its run to one file, all or nothing.

    Whenever the process or the machine stops, there is the old file or the new one. The file is an
    ``.npz`` without pickles, and its name is exactly ``path``.

    Args:
      path: the file to write.
      model: any learner made of the library's classes, or of classes decorated with ``model``.
      state: the model's state. It may have leading axes, of many streams or trials.
      key: the ``jax.random.key`` of the run, or an array of keys.
      position: how many samples of the stream the state has seen.
      extra: a dict that JSON can hold, to be saved with the rest.
      num_features: the number of inputs; by default it is found from the state.
      supply_model: allow a model that holds functions, which no file can hold. Such a model must be
        passed to :func:`load` again.

    Raises:
      OSError: the system refused; the message says which file is in place.
      TypeError, ValueError: something cannot be saved, or the state does not belong to the model.

    >>> import tempfile, jax, jboost as jb
    >>> xs, ds = jb.streams.duffing(200)
    >>> model, key = jb.bsgd_ru(m=3, target_mse=0.25, step_size=0.1), jax.random.key(0)
    >>> whole, _ = jb.run(model, xs, ds, key)
    >>> half, _ = jb.run(model, xs[:100], ds[:100], key)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(folder + "/run.npz", model, half, key)
    ...     model, half, key = load(folder + "/run.npz")
    >>> again, _ = jb.run(model, xs[100:], ds[100:], key, half)
    >>> bool((again.learners[0].w == whole.learners[0].w).all())
    True
    """
    checks.path("path", path)
    header, arrays = contents(
        model, state, key, position=position, extra=extra, num_features=num_features,
        supply_model=supply_model,
    )  # fmt: skip
    with replacing(path) as file:
        archive.write(file, header, arrays)


def contents(
    model: Learner,
    state: State,
    key: Key = None,
    *,
    position: int | None = None,
    extra: Mapping[str, Any] | None = None,
    num_features: int | None = None,
    supply_model: bool = False,
) -> tuple[archive.Header, archive.Arrays]:
    """The header and the arrays that :func:`save` would write; the arguments are the same."""
    instance("model", model)
    supply_model = checks.flag("supply_model", supply_model)
    if key is not None:
        checks.key("key", key)
    if num_features is not None:
        num_features = checks.whole("num_features", num_features, at_least=1)
    if position is not None:
        position = checks.whole("position", position, at_least=0, at_most=LARGEST_POSITION)
    refuse_deep("extra", extra)
    try:
        extra = json.loads(json.dumps(dict(extra or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        problem = f"extra must be a dict that JSON can hold ({error})"
        raise TypeError(f"{problem}; got {checks.shown(extra)}") from None
    header, store = {"jax": jax.__version__, "position": position, "extra": extra}, Store()
    header["model"] = describe(model, store, opaque=supply_model)
    store.put_leaves("state", state)
    if key is not None:
        store.put("key", key)
    header |= size_of(model, state, key, num_features)._asdict() | {"keys": store.keys}
    return header, store.arrays


def load(path: PathLike, model: Learner | None = None) -> tuple[Learner, State, Key]:
    """Read the model, its state and the key (or None) that :func:`save` wrote.

    Nothing in the file is executed, and memory is taken only in proportion to its size.

    Args:
      path: the file.
      model: the model that was saved, if the file cannot hold all of it; another is refused. (To
        go on with other settings, load the state and run another model with it.)

    Raises:
      CheckpointError: the file is truncated, damaged, of a newer format, or no checkpoint at all.
      OSError: there is no file, or the system does not let it be read.
    """
    return read(path, model)[:3]


def read(path: PathLike, model: Learner | None = None) -> Checkpoint:
    """Read what :func:`save` wrote, with the position in the stream and the ``extra`` dict."""
    if model is not None:
        checks.instance("model", model, Learner, "the learner that was saved")
    with _refusing(path):
        header, arrays = archive.read(path)
        store = Store(arrays, header["keys"])
        if model is None:
            model = rebuild(header["model"], store)
            if not isinstance(model, Learner):
                raise CheckpointError("is not usable: its model is not a learner")
        else:
            _check_same(model, header["model"], store)
        if "key" in arrays and "key" not in store.keys:
            raise CheckpointError("is not usable: its key is no jax.random.key")
        key = store.take_jax("key") if "key" in arrays else None
        state = _rebuild_state(model, header, store, key)
        if (position := header["position"]) is not None:
            checks.whole("position", position, at_least=0, at_most=LARGEST_POSITION)
        refuse_deep("extra", header["extra"])
        return Checkpoint(model, state, key, position, dict(header["extra"]))


def inspect(path: PathLike) -> dict[str, Any]:
    """Read the header of a file, after its checksum was found right. The model is not built.

    It has ``format``, ``library`` and ``jax`` (versions), ``model`` (a description), ``position``,
    ``num_features``, ``dtype``, ``batch`` (leading axes of the state), ``extra``, ``keys`` (the
    implementation of each PRNG key) and ``arrays`` (name, dtype and shape of each).

    >>> import tempfile, jboost as jb
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(folder + "/run.npz", jb.SGD(0.1), jb.SGD(0.1).init(3), position=7)
    ...     header = inspect(folder + "/run.npz")
    >>> header["model"]["class"], header["num_features"], header["position"], header["arrays"]
    ('SGD', 3, 7, [['state.w', 'float32', [3]]])
    """
    with _refusing(path):
        return archive.read(path)[0]


@contextlib.contextmanager
def _refusing(path: PathLike) -> Iterator[None]:
    """Make every error that the contents of a file lead to a CheckpointError with its path."""
    name = checks.path("path", path)
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{name} {checks.printable(error)}") from error.__cause__
    except IsADirectoryError:
        raise CheckpointError(f"{name} is a folder. {archive.OTHER_FILE}") from None
    except OSError:
        raise
    except Exception as error:  # the checksum is right: a forged file, or an error of a learner
        reason = f"{type(error).__name__}: {checks.printable(error):.300}"
        raise CheckpointError(f"{name} cannot be rebuilt here ({reason})") from error


def _check_same(model: Learner, saved: object, store: Store) -> None:
    """Refuse a model that differs from the saved description, or from its arrays in the store."""
    supplied = Store()
    problem = difference(saved, describe(model, supplied, opaque=True))
    for name, new in supplied.arrays.items():
        if problem is None and name in store.arrays:
            old = store.take(name)
            same = (new.dtype, new.shape, new.tobytes()) == (old.dtype, old.shape, old.tobytes())
            problem = None if same else f"the numbers of {name} differ"
    if problem is not None:
        raise CheckpointError(f"is of another model: {problem}. Pass the model that was saved")


def _rebuild_state(model: Learner, header: archive.Header, store: Store, key: Key) -> State:
    """Build the state of the arrays that model and key left in the store."""
    refuse_narrowing(archive.DTYPES[header["dtype"]])
    num_features = checks.whole("num_features", header["num_features"], at_least=1)
    expected = template(model, num_features, header["dtype"], key)
    names = Store().put_leaves("state", jax.tree.map(lambda _: 0, expected))
    fitting = sorted([*store.taken, *names])
    if fitting != sorted(store.arrays):
        odd = ", ".join(sorted({*fitting} ^ {*store.arrays}))
        raise CheckpointError(
            "is not usable: its arrays are not those of a state of its model in this release "
            f"({odd:.200}). Load it with jboost {header['library']}"
        )
    leaves = [store.take_jax(name) for name in names]
    state = jax.tree.unflatten(jax.tree.structure(expected), leaves)
    if problem := mismatch(expected, state, tuple(header["batch"])):
        raise CheckpointError(f"is not usable: {problem}")
    return state
