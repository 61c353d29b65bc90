"""Counts requests and how long they took, for ``/metrics`` and for the page."""

from __future__ import annotations

import bisect
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping

import numpy as np

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
RECENT = 2000  # requests of a route whose times are kept
MOST_ROUTES = 64  # a bound; there are fewer
SPAN = 10  # seconds over which rates are taken


class Requests:
    """The account of all requests. Only the event loop's thread counts."""

    def __init__(self) -> None:
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.times: dict[str, list[float]] = {}  # by route: how many within each bound, and the sum
        self.recent: dict[str, deque[float]] = {}
        self._rows: dict[str, deque[tuple[float, int]]] = {}

    def add(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        if route not in self.times:
            if len(self.times) >= MOST_ROUTES:
                return
            self.times[route] = [0.0] * (len(BOUNDS) + 2)
            self.recent[route] = deque(maxlen=RECENT)
        self.statuses[route, status] += 1
        self.times[route][bisect.bisect_left(BOUNDS, seconds)] += 1
        self.times[route][-1] += seconds
        self.recent[route].append(seconds)

    def rate(self, name: str, count: int) -> float:
        """Return how fast a count has grown lately, a second; each call is one look at it."""
        looks = self._rows.setdefault(name, deque())
        now = time.monotonic()
        looks.append((now, count))
        while len(looks) > 2 and looks[1][0] < now - SPAN:
            looks.popleft()
        then, before = looks[0]
        return (count - before) / (now - then) if now > then else 0.0

    def quantiles(self, route: str) -> dict[str, float]:
        """Return the median and the 99th percentile of the recent times, in seconds."""
        recent = self.recent.get(route)
        if not recent:
            return {}
        middle, slow = np.quantile([*recent], [0.5, 0.99]).tolist()
        return {"p50": middle, "p99": slow}


def text(
    requests: Requests, gauges: Mapping[str, Iterable[tuple[Mapping[str, str], float]]]
) -> str:
    """Return everything in the text format of Prometheus.

    ``gauges`` has, by the name of a metric, its labels and values. A name that ends in ``_total``
    is a counter.
    """
    lines = ["# TYPE jboost_requests_total counter"]
    for (route, status), count in requests.statuses.items():
        labels = {"route": route, "status": str(status)}
        lines.append(f"jboost_requests_total{_labels(labels)} {count}")
    lines.append("# TYPE jboost_request_seconds histogram")
    for route, (*counts, total) in requests.times.items():
        within = np.cumsum(counts).astype(int).tolist()
        for bound, count in zip((*BOUNDS, math.inf), within, strict=True):
            shown = "+Inf" if bound == math.inf else f"{bound:g}"
            labels = _labels({"route": route, "le": shown})
            lines.append(f"jboost_request_seconds_bucket{labels} {count}")
        lines.append(f"jboost_request_seconds_sum{_labels({'route': route})} {total:.6f}")
        lines.append(f"jboost_request_seconds_count{_labels({'route': route})} {within[-1]}")
    for name, values in gauges.items():
        lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in values]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    inside = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.10g}"
