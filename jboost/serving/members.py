"""A model that learns a stream of answers: made anew, from a kept run, or from its checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jboost import catalogue
from jboost.adapters.held import Held
from jboost.checkpoints import checkpoint
from jboost.checkpoints.archive import CheckpointError
from jboost.core import Key, Learner, State, checks
from jboost.core.learner import float_dtype
from jboost.core.step import Observe
from jboost.core.within import within
from jboost.files.ahead import Timing
from jboost.files.columns import Columns
from jboost.fleets.fleet import Fleet
from jboost.forecasts import Forecast
from jboost.reports.accounts import Watch
from jboost.reports.horizons import observed
from jboost.reports.tally import Tally
from jboost.running.blocks import Block
from jboost.running.run import initial
from jboost.serving.accounts import Account
from jboost.serving.columns import Numbers, numbers, plain_names
from jboost.serving.estimates import Estimates, flags_of, of_forecaster
from jboost.serving.rows import Features
from jboost.wrappers.flags import Flags
from jboost.wrappers.intervals import Intervals

WARMED = (16, 256)  # rows for which a fleet's programs are compiled before any come
POLICIES = ("impute", "skip", "raise")  # of missing inputs, in a run that is kept


class Member(NamedTuple):
    """A model, what it has learned, and how far that is. It never changes: there is a next one."""

    called: str  # the model's name in the catalogue
    model: Learner
    key: Key
    missing: str  # what its run did with missing inputs, one of POLICIES
    columns: Columns | None = None  # None until the first rows fix them
    learned: Held | State = None  # as above: one state, or that of a fleet
    seen: int = 0  # rows that the model has learned, those of its kept run among them
    position: int = 0  # answers of the stream that came before its next one
    dtype: np.dtype = np.dtype(np.float32)  # of the state
    plain: list[str] | None = None  # the names of the columns, if all of them hold numbers
    key_column: str | None = None  # the column that names the stream of a row; None for one stream
    fleet: Fleet | None = None  # the model for each key; what is learned is then its state
    bounds: bool = False  # whether the bounds of a forecaster are told

    @property
    def state(self) -> State:
        """The state of the model, or of the fleet; None until the first rows fix the columns."""
        return self.learned.state if isinstance(self.learned, Held) else self.learned

    @property
    def coverage(self) -> float | None:
        """The part of the answers that its intervals are to hold; None if it has none."""
        if not isinstance(self.model, Intervals | Forecast):
            return None
        told = self.bounds or isinstance(self.model, Intervals)
        return float(np.asarray(self.model.coverage)) if told else None

    @property
    def width(self) -> int:
        """The number of columns of x."""
        assert self.columns is not None
        timed = isinstance(self.model, Forecast) and self.model.calendar is not None
        return self.columns.width + timed

    def with_columns(self, columns: Columns) -> Member:
        """Return the member that takes rows of these columns, before it has learned any."""
        if self.key_column is not None:
            fleet = Fleet(self.model, columns.width, key=self.key)
            return self._replace(columns=columns, fleet=fleet, learned=fleet.init()).warm()
        state = initial(self.model, columns.width, jnp.result_type(float), self.key)
        return self._replace(columns=columns, learned=state).warm()

    def warm(self) -> Member:
        """Return the member with its program compiled, which the first rows would do otherwise."""
        assert self.columns is not None
        if self.fleet is not None:
            for n in WARMED:  # the fleet has a program for each of these numbers of rows
                x, keys = np.zeros((n, self.columns.width), self.dtype), [""] * n
                self.predict(x, keys)
                self.run(x, np.full(n, np.nan), keys)
            return self._replace(dtype=self.fleet.dtype, plain=plain_names(self.columns))
        dtype = np.dtype(float_dtype(self.state))
        held = Held(self.model, self.width, self.state, self.key, self._observe)
        member = self._replace(dtype=dtype, plain=plain_names(self.columns), learned=held)
        x = np.zeros((1, self.width), dtype)
        if member.predict(x).prediction.ndim != 1:
            name = type(self.model).__name__
            raise ValueError(f"a server predicts a number for a row; this {name} predicts several")
        return member

    @property
    def _observe(self) -> Observe:
        """What is recorded beside the predictions: bounds of intervals and flags, if there are."""
        if isinstance(self.model, Forecast):
            return observed
        flags = within(self.model, Flags) is not None
        return Watch(isinstance(self.model, Intervals), flags=flags)

    def numbers(self, rows: Sequence[Features]) -> Numbers:
        """Return rows as numbers; nothing of it is learned."""
        assert self.columns is not None
        gaps = self.missing == "impute"
        found = numbers(self.columns, rows, self.dtype, gaps=gaps, plain=self.plain)
        if not isinstance(self.model, Forecast) or self.model.calendar is None:
            return found
        timing = Timing.of(self.columns)
        # Rows are not counted here: only those with an answer are learned.
        times = np.full(len(found.x), np.nan)
        if timing is not None and found.wall is not None:
            times = timing.numbers(found.wall)
        return found._replace(x=np.column_stack([times, found.x]).astype(self.dtype))

    def keys(self, rows: Sequence[Features]) -> list[str]:
        """Return the keys of rows; none where there is one stream."""
        return [] if self.key_column is None else [features[self.key_column] for features in rows]

    def predict(self, x: np.ndarray, keys: Sequence[str] = ()) -> Estimates:
        """Return estimates for rows; nothing is learned, since they have no answer."""
        if self.fleet is not None:
            return Estimates(np.asarray(self.fleet.predict(self.state, [*keys], x)), None, None)
        return self.run(x, np.full(len(x), np.nan))[1]

    def run(
        self, x: np.ndarray, answers: np.ndarray, keys: Sequence[str] = ()
    ) -> tuple[Member, Estimates]:
        """Return the member that has learned the rows with answers, and what it said before each.

        A row whose answer is NaN is predicted and changes nothing. Every bit is that of ``jb.run``.
        """
        d = answers.astype(x.dtype)
        if self.fleet is not None:
            return self._run_fleet(x, d, [*keys])
        assert isinstance(self.learned, Held)
        held, trace = self.learned.run(x, d)
        answered = ~np.isnan(d)
        n = int(np.count_nonzero(answered))
        after = self._replace(learned=held, seen=self.seen + n, position=self.position + n)
        if trace.due is not None:
            return after, of_forecaster(trace, answered, bounds=self.bounds)
        seen, flags = trace.observed, None
        if "anomaly" in seen and self.columns is not None:
            flags = flags_of(seen, d, self.columns)
        return after, Estimates(trace.prediction, seen.get("low"), seen.get("high"), flags=flags)

    def _run_fleet(self, x: np.ndarray, d: np.ndarray, keys: list[str]) -> tuple[Member, Estimates]:
        """Learn the rows with answers, which come first; predict the others, and make no stream."""
        assert self.fleet is not None
        n = int(np.count_nonzero(~np.isnan(d)))
        state, found = self.state, []
        if n:
            state, trace = self.fleet.run(state, keys[:n], x[:n], d[:n])
            found.append(np.asarray(trace.prediction))
        if n < len(d):
            found.append(np.asarray(self.fleet.predict(state, keys[n:], x[n:])))
        after = self._replace(learned=state, seen=self.seen + n, position=self.position + n)
        return after, Estimates(np.concatenate(found), None, None)

    def block(self, answers: np.ndarray, estimates: Estimates) -> Block:
        """Return the account of answers that the member is about to learn."""
        n = len(answers)
        low, high = estimates.low, estimates.high
        observed = {} if low is None or high is None else {"low": low[:n], "high": high[:n]}
        d, skipped = answers.astype(self.dtype), np.zeros(n, bool)
        return Block(self.seen, d, estimates.prediction[:n], skipped, observed)


def anew(
    name: str,
    settings: Mapping[str, Any],
    seed: int | None,
    intervals: float | None,
    key: str | None = None,
    missing: str = "impute",
) -> Member:
    """Return a member that has learned nothing: a model of the catalogue, or one for each key."""
    chosen = catalogue.CATALOGUE[catalogue.check_name(name)]
    seeded = {"seed": seed} if seed is not None and "seed" in chosen.settings else {}
    impute = checks.choice("missing", missing, POLICIES) == "impute"
    model = catalogue.named(name, seeded | {**settings}, impute=impute)
    model = catalogue.resolve(model, intervals=intervals)
    drawn = jax.random.key(seed or 0) if model.needs_key else None
    return Member(name, model, drawn, missing, key_column=key)


def from_run(path: Path, position: int = 0) -> tuple[Member, Account, dict[str, Any]]:
    """Return what a file of ``jboost run --checkpoint``, or of a server, holds.

    The last value is what a server has kept in it beside; it is empty for a run.
    """
    content = checkpoint.read(path)
    try:
        saved = content.extra["caller"]
        columns = Columns.from_dict(saved["columns"])
        missing = checks.choice("missing", saved["missing"], POLICIES)
        ahead, bounds = content.model.ahead, bool(saved.get("intervals"))
        name = str(saved["name"]) if ahead else catalogue.check_name(saved["name"])
        seen = checks.whole("position", content.position, at_least=0)
        account = None if ahead and "tally" not in saved else Account.from_dict(saved)
        served = dict(content.extra.get("serving", {}))
        position = checks.whole("position", served.get("position", position), at_least=0)
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path} was not written by jboost run --checkpoint") from None
    if isinstance(content.model, Forecast) and content.model.known:
        advice = "a request has none; run it again without --known"
        raise CheckpointError(f"{path} has columns that are known in advance (--known): {advice}")
    fixed = name, content.model, content.key, missing, columns, content.state
    member = Member(*fixed, seen, position, bounds=bounds).warm()
    return member, account or Account(name, member.coverage, columns.step), served


def save(path: Path, member: Member, account: Mapping[str, Any], more: Mapping[str, Any]) -> None:
    """Write a checkpoint, which ``jboost inspect``, ``predict`` and ``run --append`` can read too.

    ``account`` is that of :meth:`Account.as_dict`; ``more`` is what the server keeps beside.
    """
    assert member.columns is not None
    tally = Tally.from_dict(account["tally"])
    error = repr(float(tally.errors[0]))
    totals = {"skipped": 0, "scored": tally.scored, "squared_error": error}
    of_run = {"missing": member.missing, "name": member.called, "file": "-", "begins": member.seen}
    of_run |= {"bad": 0, "predictions": None, "columns": member.columns.as_dict()}
    of_run["intervals"] = member.bounds
    serving = {**more, "position": member.position}
    checkpoint.save(
        path, member.model, member.state, member.key, position=member.seen,
        num_features=member.width, supply_model=True,
        extra={"stream": totals, "caller": {**account, **of_run}, "serving": serving},
    )  # fmt: skip


def digest(path: Path) -> str:
    """Return what tells the contents of a file from those of another."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
