"""Keeping a run: model, state and key in one file, from which it goes on bit for bit.

:mod:`.archive` is the file, :mod:`.atomic` how it is put in place,
:mod:`.description` what it says of the model. Here the parts come together: a state is stored
as its leaves in order and rebuilt on the structure that the model's own ``init`` gives it
(:mod:`.template`), so that a file can only ever become a state of the model it names.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jboost.checkpoints import archive
from jboost.checkpoints.archive import CheckpointError
from jboost.checkpoints.atomic import PathLike, replacing
from jboost.checkpoints.description import (
    Store,
    describe,
    difference,
    fingerprint,
    is_key,
    rebuild,
    refuse_narrowing,
)
from jboost.core import checks
from jboost.core.learner import Learner, State
from jboost.core.template import mismatch, template, width_of


class Checkpoint(NamedTuple):
    """What a file holds."""

    model: Learner
    state: State
    key: Any
    position: int | None
    extra: dict[str, Any]


def save(
    path: PathLike,
    model: Learner,
    state: State,
    key: Any = None,
    *,
    position: int | None = None,
    extra: Mapping[str, Any] | None = None,
    num_features: int | None = None,
    supply_model: bool = False,
) -> None:
    """Write a model, its state and the key of its run to one file, all or nothing.

    The file takes its place in one step once it is safely on the disk: whenever the process or the
    machine stops, there is the old file or the new one. It is an ``.npz`` without pickles, and is
    named exactly as given.

    Args:
      path: where to; a file that is there is replaced.
      model: any learner made of the library's classes or of imported ones decorated with ``model``.
      state: the model's state; one with leading axes (of many streams or trials) works as well.
      key: the ``jax.random.key`` of the run, or an array of them.
      position: how many samples of the stream the state has seen.
      extra: whatever else to keep: a dict that JSON can hold.
      num_features: the width of the inputs; by default found from the state.
      supply_model: allow a model that holds functions, which no file can keep. Such a model must be
        passed to :func:`load` again.

    Raises:
      OSError: the system refused; the message says which file is in place.
      TypeError, ValueError: something cannot be kept, or the state is not one of this model.

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
    checks.instance("model", model, Learner, "a learner such as bsgd_wu(…) or SGD(step_size=0.1)")
    if key is not None and not is_key(key):
        raise TypeError(f"key must be a jax.random.key; got {key!r}")
    if num_features is not None:
        num_features = checks.whole("num_features", num_features, at_least=1)
    store = Store()
    description = describe(model, store, opaque=supply_model)
    header = {
        "jax": jax.__version__,
        "model": description,
        "fingerprint": fingerprint(description, store),
        "position": None if position is None else checks.whole("position", position, at_least=0),
        "extra": _json(extra),
    }
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    for path_in_state, leaf in leaves:
        store.put("state" + jax.tree_util.keystr(path_in_state), leaf)
    if key is not None:
        store.put("key", key)
    header |= width_of(model, state, key, num_features)._asdict() | {"keys": store.keys}
    with replacing(path) as file:
        archive.write(file, header, store.arrays)


def load(path: PathLike, model: Learner | None = None) -> tuple[Learner, State, Any]:
    """Read what :func:`save` wrote: the model, its state and the key (None where none was saved).

    Nothing in the file is executed, and memory is taken only in proportion to its size.

    Args:
      path: the file.
      model: the model that was saved, where the file cannot hold all of it. It is checked to be the
        same one. (To go on with other settings, load the state and run another model with it.)

    Raises:
      CheckpointError: the file is truncated, damaged, of a newer format, or no checkpoint at all.
      OSError: there is no file, or the system does not let it be read.
    """
    return read(path, model)[:3]


def read(path: PathLike, model: Learner | None = None) -> Checkpoint:
    """As :func:`load`, with the position in the stream and what else was kept."""
    if model is not None:
        checks.instance("model", model, Learner, "the learner that was saved")
    with _refusing(path):
        header, arrays = archive.read(path)
        store = Store(arrays, header["keys"])
        of_model = {name: array for name, array in arrays.items() if name.startswith("model")}
        if fingerprint(header["model"], Store(of_model, header["keys"])) != header["fingerprint"]:
            raise CheckpointError("is not usable: its model and the fingerprint of that differ")
        if model is None:
            model = rebuild(header["model"], store)
            if not isinstance(model, Learner):
                raise CheckpointError("is not usable: its model is not a learner")
        else:
            _check_same(model, header, of_model)
        key = store.get("key") if "key" in arrays else None
        if key is not None and not is_key(key):
            raise CheckpointError("is not usable: its key is not one")
        state = _rebuild_state(model, header, store, [*of_model], key)
        position, extra = header["position"], header["extra"]
        if position is not None:
            checks.whole("position", position, at_least=0)
        return Checkpoint(model, state, key, position, dict(extra))


def inspect(path: PathLike) -> dict[str, Any]:
    """What a file says of itself, once its checksum is found right; the model need not be known.

    The keys are ``format``, ``library`` and ``jax`` (versions), ``model`` (a description) and its
    ``fingerprint``, ``num_features``, ``dtype``, ``batch``, ``position``, ``extra``, ``keys`` (the
    implementation of each PRNG key) and ``arrays`` (name, dtype and shape of each).

    >>> import tempfile, jboost as jb
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(folder + "/run.npz", jb.SGD(0.1), jb.SGD(0.1).init(3), position=7)
    ...     found = inspect(folder + "/run.npz")
    >>> found["model"]["class"], found["num_features"], found["position"], found["arrays"]
    ('SGD', 3, 7, [['state.w', 'float32', [3]]])
    """
    with _refusing(path):
        return archive.read(path)[0]


@contextlib.contextmanager
def _refusing(path: PathLike) -> Iterator[None]:
    """Whatever a file's content leads to is one kind of error, which names the file."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{os.fspath(path)} {checks.printable(error)}") from error.__cause__
    except OSError:
        raise
    except Exception as error:  # with the right checksum: made to fail, or a learner's own failure
        reason = f"{type(error).__name__}: {checks.printable(error):.300}"
        raise CheckpointError(f"{os.fspath(path)} cannot be rebuilt here ({reason})") from error


def _json(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        kept = json.loads(json.dumps(dict(extra or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        wanted = "extra must be a dict that JSON can hold"
        raise TypeError(f"{wanted} ({error}); got {extra!r:.200}") from None
    return kept


def _check_same(model: Learner, header: dict[str, Any], arrays: archive.Arrays) -> None:
    """The model given must be the one that was saved."""
    given = Store()
    description = describe(model, given, opaque=True)
    where = difference(header["model"], description)
    for name, array in arrays.items():
        other = given.arrays.get(name)
        if where is None and (other is None or not _same_bits(array, other)):
            where = f"the numbers of {name} differ"
    if where is not None:
        raise CheckpointError(f"is of another model: {where}. Pass the model that was saved")


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def _rebuild_state(
    model: Learner, header: dict[str, Any], store: Store, others: list[str], key: Any
) -> State:
    """The leaves of the file on the structure that the model gives its states."""
    refuse_narrowing(archive.DTYPES[header["dtype"]])
    num_features = checks.whole("num_features", header["num_features"], at_least=1)
    wanted = template(model, num_features, header["dtype"], key)
    names, structure = jax.tree_util.tree_flatten_with_path(wanted)
    expected = Store()
    for path, _ in names:
        expected.put("state" + jax.tree_util.keystr(path), 0)
    fitting = [*others, *expected.arrays, *(["key"] if key is not None else [])]
    if fitting != [*store.arrays]:
        odd = sorted({*fitting} ^ {*store.arrays})
        raise CheckpointError(
            f"is not usable: its arrays are not those of a state of its model in this release "
            f"({', '.join(odd)!s:.200}). Load it with jboost {header['library']}"
        )
    state = structure.unflatten([store.get(name) for name in expected.arrays])
    problem = mismatch(wanted, state, tuple(header["batch"]))
    if problem:
        raise CheckpointError(f"is not usable: {problem}")
    return state
