"""Metrics for Prometheus. This module is imported only if METRICS_TOKEN is set.

Labels have few values: a route's pattern, a status, a strategy, an outcome. They are never a
product, a buyer or a path, because a client could invent any number of these, and fill the memory
of every node and of Prometheus.

Each worker writes its own files in PROMETHEUS_MULTIPROC_DIR, and the worker that answers GET
/metrics adds them up. Without that folder, as in runserver, a process reports only its own counts.
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

#: Upper bounds of the histograms' buckets. A lock is held for less time than a request takes.
BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)
HELD_BUCKETS_SECONDS = (0.001, 0.0025) + BUCKETS_SECONDS
#: All outcomes of a purchase. Each series begins with 0, because Prometheus sees no increase in a
#: series that begins with 1.
OUTCOMES = (
    "sold",
    "replayed",
    "sold_out",
    "closed",
    "busy",
    "lost",
    "unavailable",
    "unknown",
    "throttled",
    "full",
    "error",
    "gone",
)
#: The label of a purchase without the name of an existing strategy.
INVALID_LOCK_LABEL = "invalid"

REQUESTS = Counter("oversold_http_requests", "Requests answered", ["route", "status"])
LATENCY = Histogram(
    "oversold_http_request_seconds", "Time to an answer", ["route"], buckets=BUCKETS_SECONDS
)
PURCHASES = Counter("oversold_purchases", "Answers to POST /buy", ["lock", "outcome"])
LOCK_WAITS = Histogram(
    "oversold_lock_wait_seconds",
    "RedisLock: until acquired or given up",
    ["lock"],
    buckets=BUCKETS_SECONDS,
)
LOCK_HOLDS = Histogram(
    "oversold_lock_held_seconds",
    "RedisLock: from acquired to released",
    ["lock"],
    buckets=HELD_BUCKETS_SECONDS,
)
RELEASES = Counter("oversold_lock_releases", "RedisLock: releases by outcome", ["lock", "outcome"])
RENEWALS = Counter("oversold_lock_renewals", "RedisLock: renewals of a lease", ["lock"])
LOST_LEASES = Counter("oversold_lock_lost", "RedisLock: lost leases by reason", ["lock", "loss"])
#: Makes a gauge whose value is the sum over the living workers.
make_summed_gauge = partial(Gauge, multiprocess_mode="livesum")
POOL_CONNECTIONS = make_summed_gauge(
    "oversold_db_pool_connections", "PostgreSQL connections of the pools", ["state"]
)
POOL_WAITERS = make_summed_gauge(
    "oversold_db_pool_waiting", "Requests that wait for a PostgreSQL connection"
)
#: Makes a gauge whose value is that of the worker that set it last.
make_latest_gauge = partial(Gauge, multiprocess_mode="mostrecent")
UNSETTLED_PROMISES = make_latest_gauge(
    "oversold_promises_unsettled", "Promises whose order is not written"
)
OLDEST_PROMISE_SECONDS = make_latest_gauge(
    "oversold_promises_oldest_seconds", "Age of the oldest promise whose order is not written"
)


class LockMetrics(Metrics):
    """Metrics of the locks of one strategy, which must be RedisLocks.

    The locks call the methods below.
    """

    def __init__(self, lock: str) -> None:
        self._wait_times = LOCK_WAITS.labels(lock)
        self._hold_times = LOCK_HOLDS.labels(lock)
        self._renewals = RENEWALS.labels(lock)
        self._releases = {outcome: RELEASES.labels(lock, outcome.value) for outcome in Release}
        self._losses = {loss: LOST_LEASES.labels(lock, loss.value) for loss in LossReason}

    def waited(self, name: str, seconds: float, acquired: bool) -> None:
        """Record the time of a wait for the lock, whether or not the lock was acquired."""
        self._wait_times.observe(seconds)

    def held(self, name: str, seconds: float, outcome: Release) -> None:
        """Record for how long a lease was held, and count the outcome of its release."""
        self._hold_times.observe(seconds)
        self._releases[outcome].inc()

    def renewed(self, name: str, seconds: float) -> None:
        """Count a renewal of a lease."""
        self._renewals.inc()

    def lost(self, name: str, loss: LossReason) -> None:
        """Count a lease that was lost before its release."""
        self._losses[loss].inc()


#: The metrics of a strategy's locks, by its name.
get_lock_metrics = cache(LockMetrics)


def count_request(route: str, status: int, seconds: float, log_fields: Mapping[str, Any]) -> None:
    """Count an answered request.

    log_fields  the fields of the answer that are logged. A purchase has `outcome` and `lock`.
                `lock` is the strategy's name, or None if the request named no existing strategy
    """
    REQUESTS.labels(route, str(status)).inc()
    LATENCY.labels(route).observe(seconds)
    if "lock" in log_fields:
        lock = log_fields["lock"] or INVALID_LOCK_LABEL
        _create_series(lock)
        PURCHASES.labels(lock, log_fields["outcome"]).inc()


@cache
def _create_series(lock: str) -> None:
    """Create a counter that begins with 0 for each outcome of purchases under a strategy.

    lock  the name of the strategy
    """
    for outcome in OUTCOMES:
        PURCHASES.labels(lock, outcome)


def answer_metrics(request: HttpRequest) -> HttpResponse:
    """Answer GET /metrics. The answer is 401 without the token, and 405 to another method."""
    if request.method != "GET":
        return JsonResponse({"error": "use GET"}, status=405, headers={"Allow": "GET"})
    header = request.headers.get("Authorization", "").encode()
    if not secrets.compare_digest(header, f"Bearer {settings.METRICS_TOKEN}".encode()):
        body = {"error": "the bearer token is missing or wrong: send METRICS_TOKEN"}
        return JsonResponse(body, status=401, headers={"WWW-Authenticate": "Bearer"})
    with suppress(redis.RedisError):  # if Redis does not answer, the gauges keep their values
        backlog = health.read_backlog()
        if backlog is not None:
            unsettled, oldest_seconds = backlog
            UNSETTLED_PROMISES.set(unsettled)
            OLDEST_PROMISE_SECONDS.set(oldest_seconds)
    registry = REGISTRY
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def watch_pool() -> None:
    """Start a thread that updates the gauges of this process's database pool every second.

    Requests cannot update the gauges: while all requests wait for the pool, no request ends.
    """
    threading.Thread(target=_update_pool_gauges, name="pool-metrics", daemon=True).start()


def _update_pool_gauges() -> None:
    """Set the gauges of this process's database pool every second, forever."""
    while True:
        statistics: dict[str, int] = connection.pool.get_stats()  # type: ignore[attr-defined]
        idle_count = statistics.get("pool_available", 0)
        POOL_CONNECTIONS.labels("in_use").set(statistics.get("pool_size", 0) - idle_count)
        POOL_CONNECTIONS.labels("idle").set(idle_count)
        POOL_WAITERS.set(statistics.get("requests_waiting", 0))
        time.sleep(1)
