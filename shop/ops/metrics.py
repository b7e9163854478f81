"""What Prometheus scrapes. Imported only where METRICS_TOKEN is set.

Labels have few values each: a route's pattern, a status, a strategy, an outcome. Never a product, a
buyer or a path: a client who can invent one could fill the memory of every node and of Prometheus.

Several workers write into files of their own in PROMETHEUS_MULTIPROC_DIR, whichever worker is asked
adds them up. Elsewhere, in runserver for instance, one process speaks for itself.
"""

import os
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

import redis
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from locks import LossReason, Metrics, Release
from shop.ops import health

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)
HELD_SECONDS = (0.001, 0.0025, *SECONDS)
#: Every outcome of a purchase, so that each is there with 0 before it happens first: the increase
#: of a series that appears with 1 is 0.
OUTCOMES = (
    *("sold", "replayed", "sold_out", "closed", "busy", "lost"),
    *("unavailable", "unknown", "throttled", "full", "error", "gone"),
)
#: The lock of a purchase that named none that exists.
NO_LOCK = "invalid"

REQUESTS = Counter("oversold_http_requests", "Requests answered", ["route", "status"])
LATENCY = Histogram(
    "oversold_http_request_seconds", "Time to an answer", ["route"], buckets=SECONDS
)
PURCHASES = Counter("oversold_purchases", "Answers to POST /buy", ["lock", "outcome"])
WAITED = Histogram(
    "oversold_lock_wait_seconds", "RedisLock: until acquired or given up", ["lock"], buckets=SECONDS
)
HELD = Histogram(
    "oversold_lock_held_seconds",
    "RedisLock: from acquired to released",
    ["lock"],
    buckets=HELD_SECONDS,
)
RELEASES = Counter("oversold_lock_releases", "RedisLock: what a release found", ["lock", "outcome"])
RENEWALS = Counter("oversold_lock_renewals", "RedisLock: leases renewed", ["lock"])
LOST = Counter("oversold_lock_lost", "RedisLock: leases lost, by how", ["lock", "loss"])
of_all = partial(Gauge, multiprocess_mode="livesum")  # the sum over the workers that live
POOL = of_all("oversold_db_pool_connections", "PostgreSQL connections of the pools", ["state"])
POOL_WAITING = of_all("oversold_db_pool_waiting", "Requests that wait for a PostgreSQL connection")
newest = partial(Gauge, multiprocess_mode="mostrecent")  # what the last worker that looked has set
UNSETTLED = newest("oversold_promises_unsettled", "Promises whose order is not written")
OLDEST_UNSETTLED = newest("oversold_promises_oldest_seconds", "Age of the oldest of them")


class LockMetrics(Metrics):
    """The hooks of every RedisLock of one strategy."""

    def __init__(self, lock: str) -> None:
        self._waited = WAITED.labels(lock)
        self._held = HELD.labels(lock)
        self._renewals = RENEWALS.labels(lock)
        self._releases = {outcome: RELEASES.labels(lock, outcome.value) for outcome in Release}
        self._lost = {loss: LOST.labels(lock, loss.value) for loss in LossReason}

    def waited(self, name: str, seconds: float, acquired: bool) -> None:
        self._waited.observe(seconds)

    def held(self, name: str, seconds: float, outcome: Release) -> None:
        self._held.observe(seconds)
        self._releases[outcome].inc()

    def renewed(self, name: str, seconds: float) -> None:
        self._renewals.inc()

    def lost(self, name: str, loss: LossReason) -> None:
        self._lost[loss].inc()


#: The hooks of a strategy, by its name.
lock_metrics = cache(LockMetrics)


def count(route: str, status: int, seconds: float, facts: Mapping[str, Any]) -> None:
    """One request was answered."""
    REQUESTS.labels(route, str(status)).inc()
    LATENCY.labels(route).observe(seconds)
    if facts:
        lock = facts["lock"] or NO_LOCK
        _begin_with_zeros(lock)
        PURCHASES.labels(lock, facts["outcome"]).inc()


@cache
def _begin_with_zeros(lock: str) -> None:
    for outcome in OUTCOMES:
        PURCHASES.labels(lock, outcome)


def expose(request: HttpRequest) -> HttpResponse:
    """GET /metrics, for those who have METRICS_TOKEN."""
    if request.method != "GET":
        return JsonResponse({"error": "use GET"}, status=405, headers={"Allow": "GET"})
    given = request.headers.get("Authorization", "").encode()
    if not secrets.compare_digest(given, f"Bearer {settings.METRICS_TOKEN}".encode()):
        body = {"error": "the bearer token is missing or wrong: send METRICS_TOKEN"}
        return JsonResponse(body, status=401, headers={"WWW-Authenticate": "Bearer"})
    if health.backlog is not None:
        with suppress(redis.RedisError):  # while Redis does not answer, the gauges stay
            unsettled, oldest = health.backlog()
            UNSETTLED.set(unsettled)
            OLDEST_UNSETTLED.set(oldest)
    registry = REGISTRY
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def watch_pool() -> None:
    """Start a thread that looks at the database pool of this process once a second.

    At a request's end nothing would be seen while everybody waits; a scrape reaches one worker.
    """
    threading.Thread(target=_look_at_pool, name="pool-metrics", daemon=True).start()


def _look_at_pool() -> None:
    while True:
        stats: dict[str, int] = connection.pool.get_stats()  # type: ignore[attr-defined]
        free = stats.get("pool_available", 0)
        POOL.labels("in_use").set(stats.get("pool_size", 0) - free)
        POOL.labels("idle").set(free)
        POOL_WAITING.set(stats.get("requests_waiting", 0))
        time.sleep(1)
