"""The figures of a stream: for the list of models, for Prometheus and for the page.

They are taken in the writer's thread, between two rounds.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from jboost.serving.estimates import finite
from jboost.serving.members import Member
from jboost.serving.metrics import Requests
from jboost.serving.service import Service
from jboost.serving.streams import Stream

ANSWERS = 60  # of the last ones, on the page
PROBES, MOST_PROBED = 32, 4096  # rows that tell how heavy columns are, and predictions in all
AGAIN = 10.0  # seconds until columns are weighed again


def described(service: Service, stream: Stream) -> dict[str, Any]:
    """Return what the list of models says of a stream."""
    now, leading = stream.now, stream.now.leading
    tally = stream.accounts[now.leader].tally
    controls = {name: errors(tally, name) for name in tally.names[1:]}
    return {
        "name": stream.name,
        "model": leading.called,
        "leader": now.leader,
        "target": stream.target,
        "columns": [c.name for c in leading.columns.inputs] if leading.columns else None,
        "rows": leading.seen,
        "answers": now.position,
        "errors": errors(tally, tally.names[0]) | _lately(stream, now.leader),
        "controls": controls,
        "served": {"answers": stream.served.count, "mse": finite(stream.served.mse)},
        "changes": [*stream.accounts[now.leader].changes.rows],
        "intervals": coverage(stream, now.leader),
        "shadows": [shadow(stream, label) for label in now.members if label != now.leader],
        "keys": None if stream.key is None else len(stream.errors.sums),
        "open_questions": service.log.open(stream.name),
    }


def errors(tally: Any, name: str) -> dict[str, float | None]:
    """Return the errors of the model or of a control."""
    mse = tally.mse[name]
    root = math.sqrt(mse) if mse >= 0 else math.nan
    return {"mse": finite(mse), "rmse": finite(root), "mae": finite(tally.mae[name])}


def coverage(stream: Stream, label: str) -> dict[str, float | None] | None:
    """Return how the intervals of a member do; None if it has none."""
    bands = stream.accounts[label].bands
    if bands is None:
        return None
    shares = {"inside": bands.covered, "lately": bands.lately, "width": bands.width}
    return {"wanted": bands.coverage} | {name: finite(value) for name, value in shares.items()}


def shadow(stream: Stream, label: str) -> dict[str, Any]:
    """Return what the list of models says of a shadow."""
    member, tally = stream.now.members[label], stream.accounts[label].tally
    return {
        "label": label,
        "model": member.called,
        "rows": member.seen,
        "errors": errors(tally, tally.names[0]) | _lately(stream, label),
    }


def _lately(stream: Stream, label: str) -> dict[str, float | None]:
    """Return the errors on answers that all members of a stream have learned."""
    account = stream.accounts[label]
    count, squared = account.since.tolist()
    since = squared / count if count else math.nan
    return {"lately": finite(account.tally.lately), "since_start": finite(since)}


class Watcher:
    """Takes the figures that the page shows, and remembers what takes long."""

    def __init__(self, service: Service, requests: Requests):
        self._service, self._requests = service, requests
        self._heaviest: dict[str, tuple[float, list[tuple[str, float]]]] = {}

    def page(self, stream: Stream) -> dict[str, Any]:
        """Return what the page shows of a stream."""
        tally = stream.accounts[stream.now.leader].tally
        ends, so_far, within = tally.curves()
        answers = [answer._asdict() for answer in [*stream.served.last][-ANSWERS:]]
        for answer in answers:
            answer["estimate"] = finite(answer["estimate"])
        return described(self._service, stream) | {
            "time": time.time(),
            "curves": {
                "rows": ends.tolist(),
                "so_far": {name: [*map(finite, c.tolist())] for name, c in so_far.items()},
                "within": {name: [*map(finite, c.tolist())] for name, c in within.items()},
            },
            "last": answers,
            "rate": self._requests.rate(f"answers {stream.name}", stream.now.position),
            "predictions": self._requests.rate(f"asked {stream.name}", stream.predictions),
            "latency": self._requests.quantiles("predict"),
            "heaviest": self.heaviest(stream),
            "trouble": self._service.writer.health.trouble if self._service.writer else "",
        }  # fmt: skip

    def heaviest(self, stream: Stream) -> list[tuple[str, float]]:
        """Return the columns whose values move the predictions most, the heaviest first.

        The weight of a column is how far predictions of the last rows move, in the mean square,
        when the column has its mean in all of them; in parts of the sum over columns.
        """
        then, found = self._heaviest.get(stream.name, (-math.inf, []))
        if time.monotonic() - then > AGAIN and stream.now.leading.columns is not None:
            found = weights_of_columns(stream.now.leading, stream.recent_features)
            self._heaviest[stream.name] = time.monotonic(), found
        return found


def weights_of_columns(member: Member, rows: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Return the columns and their weights, as :meth:`Watcher.heaviest` says."""
    assert member.columns is not None
    inputs = member.columns.inputs
    rows = rows[-max(min(PROBES, MOST_PROBED // (len(inputs) + 1)), 2) :]
    if len(rows) < 2 or len(inputs) > MOST_PROBED // 4 or member.model.ahead:
        return []
    x, keys = member.numbers(rows).x, member.keys(rows)
    with np.errstate(all="ignore"):
        mean = np.nan_to_num(np.nanmean(np.where(np.isnan(x).all(axis=0), 0, x), axis=0))
    probes, at = [x], 0
    for column in inputs:
        changed = x.copy()
        changed[:, at : at + column.width] = mean[at : at + column.width]
        probes.append(changed)
        at += column.width
    found = member.predict(np.concatenate(probes), keys * len(probes))
    estimates = found.prediction.astype(np.float64)
    plain, *others = np.split(estimates, len(inputs) + 1)
    moved = np.array([np.mean((other - plain) ** 2) for other in others])
    shares = np.sqrt(np.nan_to_num(moved))
    shares = shares / (shares.sum() or 1.0)
    order = np.argsort(-shares)
    return [(inputs[i].name, float(shares[i])) for i in order.tolist()][:10]


def gauges(service: Service) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the figures that Prometheus reads."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}

    def put(name: str, value: float, **labels: str) -> None:
        found.setdefault(f"jboost_{name}", []).append((labels, value))

    for stream in service.streams.values():
        name, tally = stream.name, stream.accounts[stream.now.leader].tally
        put("answers_learned_total", stream.now.position, model=name)
        put("rows_learned_total", stream.now.leading.seen, model=name)
        put("predictions_total", stream.predictions, model=name)
        put("open_questions", service.log.open(name), model=name)
        put("served_mse", stream.served.mse, model=name)
        for flag, count in stream.served.flags.items():
            put("flags_total", count, model=name, flag=flag)
        for index, (of, mse) in enumerate(tally.mse.items()):
            put("mse", mse, model=name, of=of if index else "model")
        for label in stream.now.members:
            if label != stream.now.leader:
                shadow_tally = stream.accounts[label].tally
                put(
                    "mse", shadow_tally.mse[shadow_tally.names[0]], model=name, of=f"shadow {label}"
                )
        bands = stream.accounts[stream.now.leader].bands
        if bands is not None:
            put("interval_coverage", bands.covered, model=name)
        put("not_in_checkpoints", service.unkept(name), model=name)
    put("questions_dropped_total", service.log.dropped)
    if service.writer is not None:
        health = service.writer.health
        put("transactions_total", health.rounds)
        put("requests_waiting", health.begun - health.ended)
        put("log_writable", 0 if health.trouble else 1)
    return found
