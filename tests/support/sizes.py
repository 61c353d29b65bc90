"""Builds and loads models of absurd sizes, in a process that may take little memory.

``python -m support.sizes`` prints a line for each that is not refused with a sentence at once, and
then how many it has tried. With ``-v`` it names those that are allowed, too.
"""

import dataclasses
import io
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import jboost as jb
from jboost.checkpoints import archive
from jboost.core.checks import LARGEST_WHOLE
from support.arguments import CLASSES, KEY, SGD, runnable, valid_model

MEMORY, SECONDS = 2**30, 20  # the most that a refusal may take, beyond what the process has
STILL = jb.baselines.LastValue()  # its state does not depend on the number of inputs
HELD = {
    name: cls
    for name, cls in CLASSES.items()
    if issubclass(cls, (jb.Learner, jb.Transform, jb.metrics.Metric))
}


def sizes(cls):
    """Return the fields of a class that are whole numbers."""
    model = valid_model(cls)
    return [f.name for f in dataclasses.fields(cls) if type(getattr(model, f.name)) is int]


def nested(transform, times):
    return jb.pipeline(*[transform] * times, STILL)


def built():
    """Yield the name of a model of absurd size and a function that builds it, or its state."""
    for name, cls in HELD.items():
        for field in sizes(cls):
            settings = {field: LARGEST_WHOLE}
            yield f"{name}.{field}", lambda c=cls, s=settings: runnable(c, **s).init(3, key=KEY)
        yield f"{name}, columns", lambda c=cls: runnable(c).init(LARGEST_WHOLE, key=KEY)
    hidden, row = jb.networks.Perceptron(LARGEST_WHOLE), np.ones((1, 60_000), np.float32)
    yield "network", lambda: hidden.init(3, None, KEY)
    yield "GaussNewton", lambda: jb.GaussNewton(hidden).init(3, key=KEY)
    yield "auto", lambda: jb.auto("large").init(LARGEST_WHOLE)
    yield "booster", lambda: jb.boost(SGD, 2**20, target_mse=0.1).init(3)
    yield "larger booster", lambda: jb.boost(SGD, LARGEST_WHOLE, target_mse=0.1)
    yield "booster of a function", lambda: jb.boost(lambda k: SGD, LARGEST_WHOLE, target_mse=0.1)
    yield "targets", lambda: jb.targets(SGD, LARGEST_WHOLE).init(3)
    yield "polynomial", lambda: jb.Polynomial(2).width(60_000)
    yield "polynomial, applied", lambda: jb.Polynomial(2).apply((), row[0])
    yield "polynomial, run", lambda: jb.run(nested(jb.Polynomial(2), 1), row, [1.0])
    yield "polynomial of degree 40", lambda: jb.Polynomial(40).width(60_000)
    yield "polynomials", lambda: nested(jb.Polynomial(40), 9).init(3)
    yield "lags of lags", lambda: nested(jb.Lags(inputs=10**6), 9).init(3)


def loaded(folder):
    """Yield the name of a small checkpoint of absurd size, and a function that loads it."""

    def forged(name, model, change):
        path = Path(folder) / "forged"
        jb.save(path, model, model.init(3, key=KEY), KEY, num_features=3)
        header, arrays = archive.read(path)
        header = change({k: header[k] for k in header if k not in ("format", "library", "arrays")})
        file = io.BytesIO()
        archive.write(file, header, arrays)
        path.write_bytes(file.getvalue())
        return f"load {name}", lambda: jb.load(path)

    def resized(field, value, size):
        def change(header):
            text, old = json.dumps(header["model"]), f'"{field}": {value}'
            assert old in text
            return header | {"model": json.loads(text.replace(old, f'"{field}": {size}'))}

        return change

    def transforms(*each):
        described = [{"class": type(t).__name__, "fields": dataclasses.asdict(t)} for t in each]

        def change(header):
            header["model"]["fields"]["transforms"] = described
            return header | {"num_features": 60_000}

        return change

    for name, cls in HELD.items():
        if name != "Gradient":  # a file cannot hold its functions
            for field in sizes(cls):
                value = getattr(valid_model(cls), field)
                for size in (LARGEST_WHOLE, 10**12, 10**400):
                    yield forged(f"{name}.{field}", runnable(cls), resized(field, value, size))
    plain = nested(jb.Bias(), 1)
    yield forged("polynomial", plain, transforms(jb.Polynomial(2)))
    yield forged("polynomial of degree 40", plain, transforms(jb.Polynomial(40)))
    yield forged("polynomials", plain, transforms(*[jb.Polynomial(3)] * 60))
    yield forged("lags of lags", plain, transforms(*[jb.Lags(inputs=2)] * 60))


def main():
    valid_model(jb.Newton).init(3)  # JAX takes what it needs
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for calls in (built(), loaded(folder)):
            for name, call in calls:
                start, count = time.process_time(), count + 1
                try:
                    call()
                    if "-v" in sys.argv:
                        print(f"{name}: allowed")
                except ValueError as error:
                    if "OverflowError" in str(error) or "MemoryError" in str(error):
                        print(f"{name}: {error}")
                except Exception as error:
                    print(f"{name}: {type(error).__name__}: {str(error)[:200]}")
                if time.process_time() - start > SECONDS:
                    print(f"{name}: {time.process_time() - start:.0f} s")
    print(f"tried {count}")


if __name__ == "__main__":
    main()
