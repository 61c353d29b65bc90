"""export: a model as StableHLO, which runs on any machine that has JAX, without jboost.

The file is a zip archive:

| entry              | what it holds                                                              |
|--------------------|----------------------------------------------------------------------------|
| `predict.cpu.bin`  | predict(state, x) → prediction, as :func:`jax.export.deserialize` reads it |
| `step.cpu.bin`     | step(state, x, d) → (prediction, state after the sample), likewise         |
| `predict.cpu.mlir` | the same two as bytecode of StableHLO, for programs other than JAX         |
| `step.cpu.mlir`    |                                                                            |
| `….cuda.…`, …      | the same for the other platforms                                           |
| `state.npz`        | the state, a list of arrays: `0`, `1`, …                                   |
| `about.json`       | names, shapes and dtypes of the arrays; the platforms; versions            |

The settings of the model, and the key of its run, are constants of the two functions. Each platform
has functions of its own: one that serves several platforms rounds differently on the CPU.
"""

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.export import Exported
from jax.export import export as export_function

from jboost.checkpoints.atomic import PathLike, replacing
from jboost.core import Key, Learner, State, checks, extras
from jboost.core.learner import instance, required_key
from jboost.core.outline import outline
from jboost.core.step import step
from jboost.core.template import size_of
from jboost.running.run import targets_of

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
Leaves = list[Array]


@dataclass(frozen=True)
class Artefact:
    """A model that needs no jboost, made by :func:`export`."""

    programs: dict[str, Exported]  # by function and platform, as "predict.cpu" and "step.tpu"
    state: list[np.ndarray]  # the arrays of the state, in the order that the functions take
    about: dict[str, Any]  # what `about.json` holds

    @property
    def predict(self) -> Exported:
        """``predict.call(state, x)`` is the prediction, on the platform that JAX uses here."""
        return self._here("predict")

    @property
    def step(self) -> Exported:
        """``step.call(state, x, d)`` is the prediction and the state after the sample, likewise."""
        return self._here("step")

    def _here(self, function: str) -> Exported:
        platforms = self.about["platforms"]
        backend = jax.default_backend()
        backend = "cuda" if backend == "gpu" else backend
        return self.programs[f"{function}.{backend if backend in platforms else platforms[0]}"]

    def save(self, path: PathLike) -> None:
        """Write it to a zip archive, all or nothing; the module's docstring lists the entries."""
        checks.path("path", path)
        with replacing(path) as file:
            file.write(bytes(self))

    def __bytes__(self) -> bytes:
        """Return the zip archive."""
        arrays, archive = io.BytesIO(), io.BytesIO()
        numbered: dict[str, Any] = {str(i): leaf for i, leaf in enumerate(self.state)}
        np.savez(arrays, **numbered)
        entries = {"about.json": json.dumps(self.about, indent=1, ensure_ascii=False).encode()}
        entries["state.npz"] = arrays.getvalue()
        for name, function in self.programs.items():
            extras.need("flatbuffers", "export")
            entries[f"{name}.bin"] = bytes(function.serialize())
            entries[f"{name}.mlir"] = function.mlir_module_serialized
        with zipfile.ZipFile(archive, "w") as file:
            for name, content in entries.items():
                file.writestr(name, content, zipfile.ZIP_DEFLATED)
        return archive.getvalue()


def export(
    model: Learner,
    state: State,
    key: Key = None,
    *,
    num_features: int | None = None,
    platforms: Sequence[str] = ("cpu", "cuda", "tpu"),
) -> Artefact:
    """Make two functions of a model that run without jboost: predict, and predict then learn.

    Both take the state as a list of arrays, ``artefact.state`` at first. The inputs are x, (r,),
    and the target d in the dtype of the state; a d of NaN is not learned. On a CPU they compute the
    bits of ``jax.jit`` of the same functions; a run may round otherwise, in the last digits.
    ``artefact.save(path)`` writes a zip archive, which needs only JAX and NumPy:

        archive = zipfile.ZipFile(path)
        state = [*np.load(io.BytesIO(archive.read("state.npz"))).values()]
        step = jax.export.deserialize(bytearray(archive.read("step.cpu.bin")))
        prediction, state = step.call(state, x, d)

    JAX promises to read such files for six months; the ``.mlir`` entries are StableHLO, which other
    compilers read as well.

    Args:
      model: any learner. Its settings become constants.
      state: its state, from ``init`` or a run.
      key: the ``jax.random.key`` of the run, for a model that draws; it becomes a constant too.
      num_features: the number of inputs; by default it is found from the state.
      platforms: where the functions can run: some of "cpu", "cuda", "rocm" and "tpu".

    >>> import jboost as jb
    >>> xs, ds = jb.streams.duffing(100)
    >>> model = jb.pipeline(jb.Scale(), jb.NLMS(0.1))
    >>> state, _ = jb.run(model, xs, ds)
    >>> artefact = export(model, state)
    >>> prediction, after = artefact.step.call(artefact.state, xs[0], ds[0])
    >>> bool(prediction == jax.jit(model.predict)(state, xs[0])), artefact.predict.platforms
    (True, ('cpu',))
    """
    instance("model", model)
    if num_features is not None:
        num_features = checks.whole("num_features", num_features, at_least=1)
    if key is not None or model.needs_key:
        checks.key("key", required_key(key))
    platforms = _checked_platforms(platforms)
    size = size_of(model, state, key, num_features)
    if size.batch:
        raise ValueError(f"state must be that of one stream; got leading axes {size.batch}")
    leaves, structure = jax.tree.flatten(state)

    def predict(leaves: Leaves, x: Array) -> Array:
        return model.predict(structure.unflatten(leaves), x)

    def predict_then_learn(leaves: Leaves, x: Array, d: Array) -> tuple[Array, Leaves]:
        after, trace = step(model, structure.unflatten(leaves), x, d, key)
        return trace.prediction, jax.tree.leaves(after)

    shapes = [jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
    x = jax.ShapeDtypeStruct((size.num_features,), size.dtype)
    q = targets_of(model)
    d = jax.ShapeDtypeStruct(() if q is None else (q,), size.dtype)
    named = jax.tree_util.tree_flatten_with_path(state)[0]
    names = ["state" + jax.tree_util.keystr(path) for path, _ in named]
    about = {
        "x": [size.dtype, [size.num_features]],
        "d": [size.dtype, [*d.shape]],
        "state": [
            [name, leaf.dtype.name, [*leaf.shape]] for name, leaf in zip(names, shapes, strict=True)
        ],
        "platforms": platforms,
        "versions": {package: version(package) for package in ("jboost", "jax", "jaxlib")},
        "model": outline(model),
    }
    programs = {}
    for platform in platforms:
        first = export_function(jax.jit(predict), platforms=[platform])(shapes, x)
        second = export_function(jax.jit(predict_then_learn), platforms=[platform])(shapes, x, d)
        programs |= {f"predict.{platform}": first, f"step.{platform}": second}
    return Artefact(programs, [np.asarray(leaf) for leaf in leaves], about)


def _checked_platforms(platforms: Sequence[str]) -> tuple[str, ...]:
    chosen = tuple(platforms) if isinstance(platforms, (tuple, list)) else ()
    if not chosen or not all(isinstance(name, str) and name in PLATFORMS for name in chosen):
        names, got = ", ".join(map(repr, PLATFORMS)), checks.shown(platforms)
        raise ValueError(f"platforms must be a tuple of some of {names}; got {got}")
    return tuple(dict.fromkeys(chosen))
