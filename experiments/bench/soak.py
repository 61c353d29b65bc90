"""Ten million float32 steps on a stream that contains every hazard, beside float64 and the peers.

Every model of the paper runs over the stream of ``soak_stream.py`` twice: in float32 and in
float64. The samples bring a weight along, which is absurd for a few of them. Newton models run at
five memories β. There are three arrangements:

* "any units": the model as the command runs it, behind Scale, Impute, Bias and ScaleTarget, on
  columns from 1e-6 to 1e6 and targets that jump by 1e4.
* "bare": the booster itself, which is made for numbers of moderate size, on the same stream with
  columns of size 1 and jumps of 10.
* "bare, jumps of 1e4": more than a booster is made for. It must stay finite; its error, and the
  difference between the precisions, are only reported.

auto and the last arrangement take a tenth of the steps. The table shows, for each model:

* whether all estimates and the final state are finite;
* the mean squared error in float32, and its relative difference to float64, over all samples and
  over the calm ones (samples in a jump make most of the error over all);
* the largest P_jj of learners and combiner over its cap, looked at every 4,096 samples;
* how many samples were skipped, of how many that were damaged;
* the time a step, compilation included.

Random updates draw the same numbers in both precisions, so that only decisions at a tie differ.

At β = 1 the coefficients of the stream do not change. A learner that never forgets cannot follow a
change, and the combiner of m such learners then lives on their differences, which in float32 are
rounding: the calm error of bnm_wu was 1.67 in float64 and .27 in float32 when this was tried.

The columns of the stream are collinear, so the condition number of the features is infinite. The
errors may therefore differ by 1e-2; the last line says how many are within 1e-3. At each step one
P_jj in turn is brought back to its cap, once it is 2 % beyond it. Between two turns it may grow by
β^−n, where n is the number of updates in r steps.

``soak.json`` is written after every row; a run with the same settings goes on from there.
``soak_peers.py`` has river's and padasip's counterparts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jboost as jb
from experiments.bench import soak_peers
from experiments.bench.soak_stream import COLUMNS, DAMAGED, LENGTH, WEIGHTED, Spell, spells
from experiments.shared.experiment import (
    Experiment,
    Progress,
    plain,
    read_json,
    versions,
    write_json,
)
from jboost.boosting.booster import RLS_COMBINER
from jboost.catalogue import named
from jboost.core.learner import Learner
from jboost.learners.newton import SLACK, RootState

SEED = 10
M = 20
MEMORIES = (0.9, 0.99, 0.999, 0.9999, 1.0)
ANY_UNITS, BARE, BEYOND = "any units", "bare", "bare, jumps of 1e4"
UNITS_AND_JUMP = {ANY_UNITS: (True, 1e4), BARE: (False, 10.0), BEYOND: (False, 1e4)}
RIDGE = 1.0  # the command's default, hence the cap on P is 1 too
TARGET_MSE, STEP, REUSE = 0.1, 0.01, 5
COMBINER: Any = RLS_COMBINER
LIMIT, CLOSE = 1e-2, 1e-3  # of the relative difference between the precisions


class Case(NamedTuple):
    """A model at one memory, in one arrangement; ``memory`` is None for SGD models and auto."""

    name: str
    memory: float | None
    arrangement: str

    @property
    def label(self) -> str:
        memory = "" if self.memory is None else f", β = {self.memory:g}"
        return f"{self.name}{memory}, {self.arrangement}"

    @property
    def model(self) -> Learner:
        """The model as the command makes it, or the booster alone."""
        if self.name == "auto":
            return jb.auto()
        settings: dict[str, Any] = {"m": M, "target_mse": TARGET_MSE}
        if self.memory is None:
            settings["step_size"] = STEP
        else:
            settings |= {"forgetting": self.memory, "ridge": RIDGE}
        if self.arrangement == ANY_UNITS:
            return named(self.name, settings)
        return getattr(jb, self.name)(**settings)

    @property
    def growth(self) -> float:
        """The largest P_jj over its cap that is allowed: the slack times β^−n between two turns."""
        if self.memory is None:
            return 1.0
        width = len(COLUMNS) + (self.arrangement == ANY_UNITS)  # the bias
        return SLACK * self.memory ** -(width * (REUSE if self.name.endswith("dr") else 1))


class Outcome(NamedTuple):
    """One run.

    finite: whether all estimates and the final state are finite.
    mse, calm: the mean squared error over all samples, and over the calm ones.
    variance, combiner: the largest P_jj over its cap, of the learners and of the combiner.
    skipped, damaged: the number of samples that were skipped, and that had to be.
    seconds: the time, compilation included.
    """

    finite: bool
    mse: float
    calm: float
    variance: float
    combiner: float
    skipped: int
    damaged: int
    seconds: float


def cases(quick: bool) -> list[Case]:
    """All models in all arrangements; in a quick run four models."""
    kinds = ("wu", "dr", "ru")
    memories = (0.9, 0.9999) if quick else MEMORIES
    found = []
    for arrangement in UNITS_AND_JUMP:
        betas = memories if arrangement != BEYOND else (0.999,)
        found += [Case(f"bsgd_{kind}", None, arrangement) for kind in kinds]
        found += [Case(f"bnm_{kind}", beta, arrangement) for kind in kinds for beta in betas]
    if not quick:
        return [*found, Case("auto", None, ANY_UNITS)]
    # To compile is what takes the time: four models, each in one arrangement.
    few = {"bnm_wu": ANY_UNITS, "bnm_dr": BARE, "bnm_ru": BARE, "bsgd_ru": BARE}
    return [case for case in found if few.get(case.name) == case.arrangement]


def run(case: Case, count: int, dtype: Any) -> Outcome:
    """One model over the first spells of the stream, in one precision."""
    jax.config.update("jax_enable_x64", dtype is np.float64)
    model = jb.WeightColumn(case.model)
    handed: list[Spell] = []

    def source() -> Iterator[tuple[Any, Any]]:
        how = UNITS_AND_JUMP[case.arrangement]
        for spell in spells(SEED, count, *how, changes=case.memory != 1):
            handed.append(spell)
            weighted = np.column_stack([spell.x, spell.weight])
            yield weighted.astype(dtype), spell.d.astype(dtype)

    finite, calm, calm_rows, damaged = True, 0.0, 0, 0
    largest = {"learners": 0.0, "combiner": 0.0}
    start = time.perf_counter()
    stream = jb.run_stream(model, source(), jax.random.key(SEED))
    for block in stream:
        spell = handed.pop(0)
        finite &= bool(np.isfinite(block.prediction).all())
        error = block.prediction[spell.calm].astype(np.float64) - spell.d[spell.calm]
        calm, calm_rows = calm + float(np.square(error).sum()), calm_rows + len(error)
        bad = spell.bad_d if model.takes_missing else spell.bad_d | spell.bad_x
        damaged += int(bad.sum())
        if case.name != "auto":
            largest = {
                of: float(np.fmax(most, variances(stream.state)[of]))
                for of, most in largest.items()
            }
    seconds = time.perf_counter() - start
    finite &= all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(stream.state))
    cap = min(1 / RIDGE, 1e4)
    return Outcome(
        bool(finite),
        stream.mse,
        calm / calm_rows,
        largest["learners"] / cap,
        largest["combiner"] / float(COMBINER.max_variance),
        stream.skipped,
        damaged,
        seconds,
    )


def variances(state: Any) -> dict[str, float]:
    """The largest P_jj of the Newton learners, whose roots are stacked, and of the combiner."""
    roots = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, RootState))
    found = {"learners": 0.0, "combiner": 0.0}
    for root in roots:
        if isinstance(root, RootState):
            T = np.asarray(root.T, np.float64)
            of = "learners" if T.ndim > 2 else "combiner"
            found[of] = max(found[of], float(np.square(T).sum(axis=-2).max()))
    return found


def row(case: Case, count: int) -> dict[str, Any]:
    """Both precisions of a case, and which of the requirements fail."""
    single = run(case, count, np.float32)
    double = run(case, count, np.float64)
    apart = abs(single.mse / double.mse - 1)
    apart_calm = abs(single.calm / double.calm - 1)
    allowed = case.growth * 1.001
    out = {
        "steps": count * LENGTH,
        "finite": single.finite,
        "mse": single.mse,
        "mse, float64": double.mse,
        "apart": apart,
        "calm mse": single.calm,
        "calm mse, float64": double.calm,
        "calm apart": apart_calm,
        "skipped": single.skipped,
        "damaged": single.damaged,
        "seconds": single.seconds,
        "seconds, float64": double.seconds,
    }
    holds = {
        "finite": single.finite and double.finite,
        "float64": case.arrangement == BEYOND or max(apart, apart_calm) <= LIMIT,
        "skipped": single.skipped == single.damaged,
    }
    if case.memory is not None:
        out |= {"P over cap": single.variance, "growth": case.growth}
    if case.name != "auto":
        out |= {"combiner P over cap": single.combiner}
        most = SLACK * float(COMBINER.forgetting) ** -M * 1.001
        holds["P"] = single.variance <= allowed and single.combiner <= most
    return out | {"fails": [what for what, good in holds.items() if not good]}


def line(label: str, found: dict[str, Any]) -> str:
    """A row of the table."""
    variance, combiner = "–", "–"
    if "P over cap" in found:
        variance = f"{found['P over cap']:.3g} (≤ {found['growth']:.3g})"
    if "combiner P over cap" in found:
        combiner = f"{found['combiner P over cap']:.3g}"
    cells = (
        label,
        "yes" if found["finite"] else "NO",
        f"{found['mse']:.5g}",
        f"{found['apart']:.1e}",
        f"{found['calm mse']:.5g}",
        f"{found['calm apart']:.1e}",
        variance,
        combiner,
        f"{found['skipped']:,} of {found['damaged']:,}",
        f"{1e6 * found['seconds'] / found['steps']:.1f}",
        ", ".join(found["fails"]) or "–",
    )
    return f"| {' | '.join(cells)} |"


HEAD = """\
| model | finite | MSE | ± float64 | calm MSE | ± float64 | P/cap | combiner | skipped | µs | fail |
|---|---|---|---|---|---|---|---|---|---|---|"""


def table(results: dict[str, Any]) -> str:
    """The table of all models, a summary, and the table of the peers."""
    ours = results["models"]
    lines = [HEAD, *(line(label, found) for label, found in ours.items()), ""]
    failed = [label for label, found in ours.items() if found["fails"]]
    held = [found for label, found in ours.items() if BEYOND not in label]
    near = sum(max(found["apart"], found["calm apart"]) <= CLOSE for found in held)
    lines.append(
        f"{len(ours)} rows, {len(failed)} that fail ({'; '.join(failed) or 'none'}). In {near} of "
        f"{len(held)} float32 is within {CLOSE:g} of float64; all must be within {LIMIT:g}."
    )
    return "\n".join([*lines, "", soak_peers.table(results["peers"])])


def main(argv: Sequence[str] | None = None) -> None:
    experiment = Experiment(__file__, __doc__, argv, double=False)
    count = -(-experiment.samples(10_000_000, 16 * LENGTH) // LENGTH)
    shorter = -(-experiment.samples(1_000_000, 2 * LENGTH) // LENGTH)
    settings = {
        "steps": count * LENGTH, "fewer steps": shorter * LENGTH, "seed": SEED, "m": M,
        "target_mse": TARGET_MSE, "step_size": STEP, "damaged": DAMAGED, "weighted": WEIGHTED,
        "ridge": RIDGE,
        "peers' steps": soak_peers.samples(experiment) * LENGTH,
    }  # fmt: skip
    file = experiment.out / "soak.json"
    stamp = {"experiment": "soak", "quick": experiment.quick, "settings": settings}
    stamp |= {"versions": versions()}
    record = read_json(file)
    if {key: record.get(key) for key in stamp} != plain(stamp):
        record = plain(stamp) | {"results": {"models": {}, "peers": {}}}
    results = record["results"]

    def done(part: str, label: str, found: dict[str, Any]) -> None:
        results[part][label] = plain(found)
        write_json(record, file)

    todo = [case for case in cases(experiment.quick) if case.label not in results["models"]]
    bar = Progress("soak", len(todo))
    for case in todo:
        length = shorter if case.name == "auto" or case.arrangement == BEYOND else count
        found = row(case, length)
        done("models", case.label, found)
        bar.add(1, f"{case.label}: {', '.join(found['fails']) or 'holds'}")
    soak_peers.measure(experiment, SEED, results["peers"], done)
    print(table(results))
    print(f"results in {file}")
    experiment.fill_pages()
    if any(found["fails"] for found in results["models"].values()):
        sys.exit("some rows fail: see the last column")


if __name__ == "__main__":
    main()
