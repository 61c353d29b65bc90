"""The loops in C, in two layouts: compiled with the system's compiler, called through ctypes."""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAYOUTS = ("together", "side by side")  # of the learners in memory; speed_<layout>.c has each
FLAGS = ("-O3", "-march=native", "-ffast-math")
MODES = {"WU": 0, "DR": 1, "RU": 2}
COMBINERS = {"NSGD": 0, "Newton": 1}
Floats = NDArray[np.float32]


class Settings(ctypes.Structure):
    """The hyperparameters, field by field as in ``speed.h``."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("m", "r", "mode", "max_reuse", "combiner")),
        *(
            (name, ctypes.c_float)
            for name in (
                "target_mse", "dependence", "step_size", "forgetting", "ridge", "max_variance",
                "combiner_step", "combiner_epsilon",
                "combiner_forgetting", "combiner_ridge", "combiner_max_variance",
            )
        ),
        ("seed", ctypes.c_uint32),
    ]  # fmt: skip


class Native:
    """The compiled loops by family, "bsgd" or "bnm", and layout."""

    def __init__(self, library: ctypes.CDLL, compiler: str) -> None:
        self.compiler = compiler
        self._functions: dict[tuple[str, str], Any] = {}
        for family, layout in itertools.product(("bsgd", "bnm"), LAYOUTS):
            function = getattr(library, f"{family}_{_file_name(layout)}")
            function.restype = None
            pointers = [ctypes.c_void_p] * 3
            function.argtypes = [ctypes.POINTER(Settings), ctypes.c_int64, *pointers]
            self._functions[family, layout] = function

    def prepare(
        self, family: str, layout: str, settings: Settings, xs: Floats, ds: Floats
    ) -> Callable[[], Floats]:
        """A call that runs the stream from the start and returns its predictions."""
        xs, ds = (np.ascontiguousarray(array, np.float32) for array in (xs, ds))
        prediction = np.empty(len(ds), np.float32)
        function = self._functions[family, layout]

        def call() -> Floats:
            addresses = (array.ctypes.data for array in (xs, ds, prediction))
            function(ctypes.byref(settings), len(ds), *addresses)
            return prediction

        return call


def build() -> Native | str:
    """The loops, or why there are none."""
    named = os.environ.get("CC", "cc").split()
    if not named or shutil.which(named[0]) is None:
        return "no C compiler (cc, or the one that CC names) was found"
    with tempfile.TemporaryDirectory() as folder:
        sources = [Path(__file__).with_name(f"speed_{_file_name(each)}.c") for each in LAYOUTS]
        compiled = {source: Path(folder) / f"{source.stem}.o" for source in sources}
        library = Path(folder) / "speed.so"
        # Linked apart from -ffast-math: with it, GCC before 13 makes a shared library set the
        # whole process to flush small numbers to zero when it is loaded, NumPy included.
        steps = [
            [*named, *FLAGS, "-fPIC", "-c", str(source), "-o", str(file)]
            for source, file in compiled.items()
        ]
        steps.append([*named, "-shared", *map(str, compiled.values()), "-lm", "-o", str(library)])
        for command in steps:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"the C compiler failed: {done.stderr.strip()[-300:]}"
        loaded = ctypes.CDLL(str(library))  # stays mapped when the file goes
    asked = subprocess.run([*named, "--version"], capture_output=True, text=True, check=False)
    first = asked.stdout.splitlines()[0] if asked.stdout else named[0]
    return Native(loaded, f"{first}, {' '.join(FLAGS)}, {platform.machine()}")


def _file_name(layout: str) -> str:
    return layout.replace(" ", "_")
