"""What the experiments share: their command line, progress, JSON, and the look of their figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jboost import plots

HERE = Path(__file__).parent
RESULTS = HERE / "results"
QUICK_RESULTS = Path(tempfile.gettempdir()) / "jboost-experiments"
OUT = (
    "the folder for the JSON and the figures "
    "(default: results beside the script; with --quick jboost-experiments among temporary files)"
)
MARKERS = ("", "o", "s", "^", "D", "v")
POINTS = 80  # of a curve that is kept
Curve = NDArray[np.float64]


class Experiment:
    """One run of a script: its arguments, its clock, and what it leaves in the output folder."""

    def __init__(
        self, name: str, description: str, argv: Sequence[str] | None, double: bool
    ) -> None:
        parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
        parser.add_argument("--quick", action="store_true", help="a small version, about 20 s")
        parser.add_argument("--out", type=Path, metavar="DIR", help=OUT)
        parser.add_argument(
            "--length", type=_length, metavar="T", help="samples of every stream, at most"
        )
        args = parser.parse_args(argv)
        self.name, self.quick, self.length = name, args.quick, args.length
        self.out = folder(args.out, args.quick)
        self.out.mkdir(parents=True, exist_ok=True)
        self.start = time.perf_counter()
        self.dtype = "float64" if double else "float32"
        jax.config.update("jax_enable_x64", double)

    def size(self, full: int, quick: int) -> int:
        """A length or a number of trials, by what was asked for."""
        return quick if self.quick else full

    def samples(self, full: int, quick: int) -> int:
        """The length of a stream."""
        return min(self.size(full, quick), self.length or full)

    def each(
        self,
        work: Callable[[Any], Any],
        items: Iterable[Any],
        label: Callable[[Any], str] = str,
        *,
        workers: int = 2,
    ) -> list[Any]:
        """[work(item), …], two at a time, with a progress bar: compiling takes one core each."""
        todo = list(items)
        bar = Progress(self.name, len(todo))

        def one(item: Any) -> Any:
            done = work(item)
            bar.tick(label(item))
            return done

        with ThreadPoolExecutor(min(workers, os.cpu_count() or 1)) as pool:
            return list(pool.map(one, todo))

    def write(self, settings: dict[str, Any], results: dict[str, Any]) -> None:
        """Keep the results as ``<name>.json`` with what is needed to have them again."""
        record = {
            "experiment": self.name,
            "quick": self.quick,
            "settings": {"dtype": self.dtype, **settings},
            "versions": versions(),
            "seconds": round(time.perf_counter() - self.start),
            "results": results,
        }
        text = json.dumps(plain(record), indent=1, ensure_ascii=False, allow_nan=False)
        (self.out / f"{self.name}.json").write_text(_compact(text) + "\n", encoding="utf-8")
        print(f"{self.name}: {record['seconds']} s, {self.out / self.name}.json", flush=True)

    def save(self, figure: Any, name: str | None = None) -> None:
        """Keep a figure as PNG."""
        plots.save(figure, self.out / f"{name or self.name}.png", dpi=110)


class Progress:
    """A bar on standard error: one line that is rewritten on a terminal, else one line per tick."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.count, self.start = name, total, 0, time.perf_counter()

    def tick(self, label: str) -> None:
        self.count += 1
        filled = round(20 * self.count / max(self.total, 1))
        seconds = time.perf_counter() - self.start
        bar = f"{'#' * filled}{'.' * (20 - filled)}"
        text = f"{self.name} [{bar}] {self.count}/{self.total} {seconds:.0f} s  {label}"
        if sys.stderr.isatty():
            end = "\n" if self.count == self.total else ""
            print(f"\r\x1b[K{text}", end=end, file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def folder(out: Path | None, quick: bool) -> Path:
    """Where results go; those of a quick run never over the figures of record by accident."""
    return out if out is not None else QUICK_RESULTS if quick else RESULTS


def versions() -> dict[str, str]:
    """What the figures depend on."""
    packages = {name: version(name) for name in ("jboost", "jax", "jaxlib", "numpy")}
    return {"python": platform.python_version(), "backend": jax.default_backend(), **packages}


def plain(value: Any) -> Any:
    """Numbers, lists and dictionaries for JSON: five digits, and null for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, (np.bool_, np.integer)):
        return value.item()
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return float(f"{number:.5g}") if np.isfinite(number) else None
    return plain(np.asarray(value).tolist())


def load(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """The JSON of an experiment."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def times(T: int, points: int = POINTS) -> NDArray[np.int64]:
    """Whole times from 1 to T, evenly spaced, at which a curve is kept."""
    return np.unique(np.linspace(1, T, min(points, T)).round().astype(np.int64))


def ase(prediction: Any, ds: Any) -> Curve:
    """The mean squared error so far, over the last axis, in float64 on the host."""
    error = np.square(np.asarray(prediction, np.float64) - np.asarray(ds, np.float64))
    return np.cumsum(error, axis=-1) / np.arange(1, error.shape[-1] + 1)


def spread(values: Any) -> dict[str, float]:
    """Mean, standard deviation over trials or keys (0 for one) and their number."""
    values = np.asarray(values, np.float64)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(values.mean()), "sd": deviation, "n": len(values)}


def style(k: int, *, markers: bool = False) -> dict[str, Any]:
    """The k-th look of a line, told apart by its pattern and marker where there is no colour."""
    look = dict(plots.STYLES[k % len(plots.STYLES)])
    if markers:
        look |= {"marker": MARKERS[k % len(MARKERS)], "markersize": 4}
    return look


def dress(ax: Any, title: str, xlabel: str, ylabel: str, **legend: Any) -> None:
    """Labels, a light grid, a legend."""
    ax.set_title(title, fontsize="medium")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if ax.get_legend_handles_labels()[0]:
        plate = {"facecolor": "white", "edgecolor": "none", "framealpha": 0.85}
        options = plate | {"fontsize": "small", "handlelength": 4} | legend
        ax.legend(**options)


def ase_panel(ax: Any, curves: dict[str, dict[str, Any]], title: str, settled: float = 0.2) -> None:
    """ASE over time with ± one standard deviation over trials where there are several.

    ``curves`` has t, mean and perhaps sd of each; before ``settled`` T nothing sets the range.
    """
    low, high = np.inf, -np.inf
    for k, (name, curve) in enumerate(curves.items()):
        t, mean = np.asarray(curve["t"], float), np.asarray(curve["mean"], float)
        ax.plot(t, mean, label=name, **style(k))
        if "sd" in curve:
            sd = np.asarray(curve["sd"], float)
            ax.fill_between(t, mean - sd, mean + sd, color=style(k)["color"], alpha=0.15, lw=0)
        late = t >= settled * t[-1]
        low, high = min(low, float(mean[late].min())), max(high, float(mean[late].max()))
    room = max(high - low, 1e-3 * high)
    ax.set_ylim(low - 0.1 * room, high + 0.6 * room)
    ax.xaxis.set_major_formatter(lambda t, _: f"{t:,.0f}")
    dress(ax, title, "samples seen, t", "accumulated squared error / t", loc="upper right")


def curve(prediction: Any, ds: Any) -> dict[str, Any]:
    """An ASE curve at a few times, mean and standard deviation over the trials (axis 0)."""
    errors = ase(prediction, ds)
    t = times(errors.shape[-1])
    kept = errors[:, t - 1]
    sd = {"sd": kept.std(axis=0, ddof=1)} if len(kept) > 1 else {}
    return {"t": t, "mean": kept.mean(axis=0), **sd}


def _length(text: str) -> int:
    length = int(text)
    if length < 100:
        raise argparse.ArgumentTypeError(f"must be at least 100; got {text}")
    return length


def _compact(text: str) -> str:
    """JSON with each list of plain values on one line."""
    return re.sub(
        r"\[\n\s+([^\[\]{}]*?)\n\s*\]", lambda found: f"[{_LINES.sub(', ', found[1])}]", text
    )


_LINES = re.compile(r",\n\s+")
