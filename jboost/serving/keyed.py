"""A model for each key, in a folder: that of a server, or of ``jboost run --key``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jboost.checkpoints.archive import CheckpointError
from jboost.files.columns import Columns
from jboost.fleets.fleet import Fleet
from jboost.fleets.shards import read_manifest
from jboost.serving.accounts import Account
from jboost.serving.members import Member, anew

# Options that a run with keys may have and a server may not, by what the run keeps of them.
OTHERS = {"intervals": "intervals", "horizon": "horizon", "events": "flagged"}
SUMS = ("answers", "squared")  # what is kept for each key: the number of answers, and their errors

Sums = Mapping[str, tuple[int, float]]  # these by key: a whole number, and a sum of squares


def from_keyed_run(path: Path) -> tuple[Member, Account, dict[str, Any], Sums]:
    """Return what a folder of ``jboost run --key`` holds, and the arguments of ``anew`` for it."""
    try:
        run = dict(read_manifest(str(path))[0]["position"]["run"])
        asked = {"name": str(run["name"]), "settings": dict(run["settings"]), "intervals": None}
        asked |= {"seed": run["seed"] or None, "key": str(run["key"]), "missing": run["missing"]}
        more = {f"--{option}": run[name] for option, name in OTHERS.items()}
        columns = Columns.from_dict(run["columns"])
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path} was not written by jboost run --key") from None
    others = [option for option, value in more.items() if value]
    if others:
        advice = f"with --key a server has no {' and no '.join(others)}; run it again without"
        raise CheckpointError(f"{path} is a run with {' and '.join(others)}: {advice}")
    member = anew(**asked)
    fleet = Fleet(member.model, columns.width, key=member.key)
    state = fleet.load(path)
    names = fleet.names(state)
    if not all(isinstance(name, str) for name in names):
        advice = "a request names its key by a text; make texts of them and run it again"
        raise CheckpointError(f"{path} has keys that are numbers or times: {advice}")
    counts = (state.columns[name].tolist() for name in ("scored", "mse")) if names else ((), ())
    sums = {str(n): (int(c), e) for n, c, e in zip(names, *counts, strict=True)}
    member = member._replace(columns=columns, fleet=fleet, learned=state, seen=int(state.rows))
    return member.warm(), Account(member.called, None, columns.step), asked, sums


def from_fleet(
    path: Path, member: Member, first: Columns
) -> tuple[Member, Account, dict[str, Any], Sums]:
    """Return what a folder of :func:`save_fleet` holds.

    ``member`` is as it was made anew, and ``first`` are its columns before it had learned. The last
    value has, for each key, how many answers there were, and the sum of their squared errors.
    """
    fleet = Fleet(member.model, first.width, key=member.key)
    state = fleet.load(path)
    try:
        extra = dict(state.position)
        counts = int(extra["seen"]), int(extra["position"])
        account, columns = Account.from_dict(extra["account"]), Columns.from_dict(extra["columns"])
        sums = zip(*(state.columns[name].tolist() for name in SUMS), strict=True)
        errors = {
            str(name): (int(n), e) for name, (n, e) in zip(fleet.names(state), sums, strict=True)
        }
        served = dict(extra["serving"])
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path} was not written by jboost serve --key") from None
    member = member._replace(columns=columns, fleet=fleet, learned=state)
    return member._replace(seen=counts[0], position=counts[1]).warm(), account, served, errors


def save_fleet(
    path: Path,
    member: Member,
    account: Mapping[str, Any],
    more: Mapping[str, Any],
    errors: Sums,
) -> None:
    """Write a folder that holds the states of all keys; ``errors`` are as :func:`from_fleet` has.

    It must be called in the thread that learns.
    """
    assert member.fleet is not None and member.columns is not None
    names = map(str, member.fleet.names(member.state))
    sums = np.array([errors[name] for name in names], np.float64).reshape(-1, 2)
    extra = {"seen": member.seen, "position": member.position, "account": account}
    extra |= {"columns": member.columns.as_dict(), "serving": more}
    columns = {name: sums[:, i].copy() for i, name in enumerate(SUMS)}
    member.fleet.save(path, member.state, position=extra, columns=columns)
