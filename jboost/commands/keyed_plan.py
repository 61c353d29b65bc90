"""What ``jboost run --key`` is to do: what its options say, or the folder of an earlier run."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from jboost import catalogue
from jboost.checkpoints.archive import CheckpointError
from jboost.commands import options
from jboost.commands.outcome import Outcome
from jboost.commands.terminal import FAILED, WRONG_USAGE, CommandError
from jboost.core import Learner, checks
from jboost.files.columns import Columns
from jboost.fleets.shards import read_manifest
from jboost.forecasts import Forecast
from jboost.reports.accounts import Bands, Learners
from jboost.reports.importance import Importance
from jboost.reports.keys import KeyTally

FORECAST = "forecast"  # the name of the forecaster without a learner
LONGEST_PERIOD = 400  # rows that seasons of a key are looked for in: a week of half hours


@dataclasses.dataclass
class Plan:
    """What stays the same in a keyed run; a checkpoint keeps it beside its :class:`Outcome`."""

    key: str  # the column of the keys
    name: str  # of the model in the catalogue
    settings: dict[str, Any]  # of the model
    missing: str  # what becomes of missing inputs, a value of ``--missing``
    seed: int
    intervals: float | None
    flagged: bool  # whether the models say what to look at, for ``--events``
    horizon: int | None  # how many rows of a key are forecast; None where none are
    known: list[str] = dataclasses.field(default_factory=list)  # columns, H rows in advance
    known_numbers: list[int] = dataclasses.field(default_factory=list)  # of these columns in x

    def model(self) -> Learner:
        """Return the model that each key has."""
        if self.horizon is None:
            asked = (self.name, self.settings, self.missing)
            return options.model_of(*asked, intervals=self.intervals, flagged=self.flagged)
        learner = None
        if self.name != FORECAST:
            impute = self.missing == "impute"
            learner = catalogue.named(self.name, self.settings, impute=impute)
        longest = max(LONGEST_PERIOD, self.horizon)
        coverage = self.intervals or 0.9
        known = tuple(self.known_numbers)
        return Forecast(learner, self.horizon, known, coverage=coverage, longest=longest)


def of_options(args: argparse.Namespace) -> Plan:
    """Return what is asked for."""
    if args.key in (args.target, args.time, *options.joined(args.known)):
        raise CommandError(f"--key is {args.key!r}, which has another role", WRONG_USAGE)
    name, chosen = FORECAST, {}
    if args.model is not None or args.horizon is None:
        name = options.known_model(args.model)
        chosen = options.settings(args, name)
    elif args.set:
        raise CommandError("--set is for a --model, and the least squares have none", WRONG_USAGE)
    flagged = args.events is not None
    return Plan(
        args.key, name, chosen, args.missing or "impute", args.seed or 0, args.intervals, flagged,
        args.horizon, options.joined(args.known),
    )  # fmt: skip


def of_folder(args: argparse.Namespace, folder: str) -> tuple[Plan, Outcome, int]:
    """Return what a folder's run does, how far it has come, and how many rows it has learned."""
    try:
        with options.refusing(FAILED):
            position = read_manifest(folder)[0]["position"]
        saved = position["run"]
        fields = [field.name for field in dataclasses.fields(Plan)]
        plan = Plan(**{name: saved[name] for name in fields if name in saved})
        seen = checks.whole("position", position["row"], at_least=0)
        begins = checks.whole("begins", saved["begins"], at_least=0, at_most=seen)
        done = Outcome(
            str(saved["file"]),
            plan.name,
            plan.model(),
            Columns.from_dict(saved["columns"]),
            checks.choice("missing", plan.missing, (*options.POLICIES,)),
            KeyTally.from_dict(saved["tally"]),
            Bands.from_dict(saved["bands"]) if saved["bands"] else None,
            Learners.from_dict(saved["learners"]) if saved["learners"] else None,
            Importance.from_dict(saved["importance"]) if saved["importance"] else None,
            saved,
            begins=seen if args.append else begins,
            bad=checks.whole("bad", saved["bad"], at_least=0),
            events={str(name): int(count) for name, count in saved["events"].items()},
            keyless=checks.whole("keyless", saved["keyless"], at_least=0),
        )
        done.skipped = checks.whole("skipped", saved["skipped"], at_least=0)
    except (KeyError, TypeError, ValueError, CheckpointError):
        raise CommandError(f"{folder} was not written by jboost run --key") from None
    _refuse_others(args, plan)
    return plan, done, seen


def _refuse_others(args: argparse.Namespace, plan: Plan) -> None:
    """Refuse options that are not those of the run to go on with."""
    chosen = None
    if args.set:
        chosen = options.settings(args, options.known_model(args.model or plan.name))
    asked = {
        "key": (args.key, plan.key),
        "model": (args.model, plan.name),
        "set": (chosen, plan.settings),
        "missing": (args.missing, plan.missing),
        "seed": (args.seed, plan.seed),
        "intervals": (args.intervals, plan.intervals),
        "horizon": (args.horizon, plan.horizon),
        "known": (options.joined(args.known) or None, plan.known or None),
    }
    for name, (now, before) in asked.items():
        if now is not None and now != before:
            had = f"no --{name}" if before in (None, {}) else f"--{name} {_shown(before)}"
            raise CommandError(f"the run to go on with has {had}", WRONG_USAGE)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={setting}" for name, setting in value.items())
    return str(value)
