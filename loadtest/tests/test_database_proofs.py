"""Faults of the database that did not happen are noticed by their proofs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loadtest.faults import fence_ahead
from loadtest.faults.db_failover import DbFailover, DbFailoverSync
from loadtest.faults.fence_ahead import AHEAD, FenceAhead, FenceAheadRaised
from loadtest.faults.partition_db import REPLY_TIMEOUT, PartitionDb
from loadtest.faults.slow_write import DELAY, SlowWrite
from loadtest.stack.client import Strategy
from loadtest.tests.fake_trial import Way, buyer, refused, trial

# --- partition-db ---------------------------------------------------------------------------------


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, PartitionDb, Any]]:
    """PostgreSQL's end of a connection; a fault that looks at the other end; a testbed."""
    server, client = socket.socketpair()
    fault = PartitionDb()
    fault.probe = SimpleNamespace(  # type: ignore[assignment]
        pgconn=SimpleNamespace(send_query=lambda query: None), fileno=client.fileno
    )
    bed = SimpleNamespace(postgres=Way(), sql=lambda statement: [(1,)])
    yield server, fault, bed
    server.close()
    client.close()


@pytest.mark.parametrize("ends", [lambda end: end.send(b"1"), lambda end: end.close()])
def test_a_database_that_answers_or_hangs_up_is_no_black_hole(
    line: tuple[socket.socket, PartitionDb, Any], ends: Callable[[socket.socket], object]
) -> None:
    server, fault, bed = line
    ends(server)
    with refused("PostgreSQL answers node A, or its connection was closed"):
        fault.prove(bed, [])


def test_a_silent_database_is_a_black_hole_if_it_answers_the_others(
    line: tuple[socket.socket, PartitionDb, Any],
) -> None:
    _, fault, bed = line
    assert "no answer and no close" in fault.prove(bed, [])
    bed.sql = lambda statement: []
    with refused("does not answer node B either"):
        fault.prove(bed, [])


def hold(seconds: float | None, *, renewed: bool, fenced: bool) -> Any:
    one = trial(strategy={"renewed": renewed, "fenced": fenced}, recovery=lambda: seconds)
    PartitionDb()._require_hold(one)
    return one


@pytest.mark.parametrize("fenced", [True, False])
def test_a_renewed_lock_that_kept_nobody_out_shows_no_bound(fenced: bool) -> None:
    assert hold(0.2, renewed=True, fenced=fenced).misses
    assert not hold(0.2, renewed=False, fenced=False).misses
    assert hold(None, renewed=True, fenced=fenced).wrong


def test_the_bound_is_max_hold_and_a_ttl_for_redislock_and_the_reply_timeout_for_others() -> None:
    fenced, other = (cast(Strategy, {"fenced": fenced}) for fenced in (True, False))
    longest = PartitionDb().longest_recovery
    assert longest(fenced) < REPLY_TIMEOUT < longest(other)


# --- slow-write -----------------------------------------------------------------------------------


def test_a_write_that_arrives_at_once_is_not_late() -> None:
    fault = SlowWrite()
    fault.probe = SimpleNamespace(execute=lambda statement: None)  # type: ignore[assignment]
    with refused("a round trip takes 0.0. s only"):
        fault.prove(SimpleNamespace(), [])  # type: ignore[arg-type]
    one = trial(victim=buyer("sold"), resume_rivals=lambda: None)
    late = SlowWrite()
    late.sent_at = time.monotonic() - DELAY
    late.resume(one)
    assert one.misses == [f"the victim was answered after {DELAY:.2f} s"]


# --- fence-ahead ----------------------------------------------------------------------------------


def bed_with_fence(monkeypatch: pytest.MonkeyPatch, ahead: float) -> Any:
    monkeypatch.setattr(fence_ahead, "clock", lambda testbed: 1000.0)
    return SimpleNamespace(sql=lambda statement: [((1000 + ahead) * 1e6,)], nodes=[])


def test_a_fence_that_is_not_ahead_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial(product="apple")
    assert "3600 s ahead" in FenceAhead().prove(bed_with_fence(monkeypatch, AHEAD), [one])
    with refused("the database's fence is 0 s ahead only"):
        FenceAhead().prove(bed_with_fence(monkeypatch, 0), [one])


@pytest.mark.parametrize(
    ("body", "misses", "wrong"),
    [
        ({"outcome": "lost", "error": "run manage.py raise_fence apple"}, 0, 0),
        ({"outcome": "lost", "error": "a newer holder"}, 0, 1),
        ({"outcome": "sold"}, 1, 0),
    ],
)
def test_the_refusal_has_to_name_the_way_out(body: Any, misses: int, wrong: int) -> None:
    asks = SimpleNamespace(error=body.get("error", ""))
    one = trial(buyers=[asks], ask_once=lambda name: body["outcome"])
    FenceAhead().act(one)
    assert (len(one.misses), len(one.wrong)) == (misses, wrong)


def test_a_way_out_that_lowers_the_databases_fence_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FenceAheadRaised, "_raise", lambda self, trial: None)
    for ahead, wrong in ((AHEAD - 2, 0), (0.0, 1)):
        one = trial(product="apple")
        FenceAheadRaised().heal(bed_with_fence(monkeypatch, ahead), [one])
        assert len(one.wrong) == wrong


# --- db-failover ----------------------------------------------------------------------------------


def failed_over(kind: type[DbFailover], *, recovers: bool = False, has: int = 0) -> DbFailover:
    """After the failover of two trials, whose last orders the old server had."""
    fault = kind()
    fault.late, fault.had, fault.has, fault.waiting, fault.dropped = "late", 2, has, 2, 900
    fault.second = SimpleNamespace(sql=lambda statement: [(recovers,)])  # type: ignore[assignment]
    return fault


@pytest.mark.parametrize("kind", [DbFailover, DbFailoverSync])
def test_a_failover_without_a_lag_or_without_a_promotion_did_not_happen(
    kind: type[DbFailover],
) -> None:
    trials, bed = [trial(), trial()], SimpleNamespace()
    assert failed_over(kind).prove(bed, trials)  # type: ignore[arg-type]
    with refused("was not promoted"):
        failed_over(kind, recovers=True).prove(bed, trials)  # type: ignore[arg-type]
    with refused("the replica has [12] of the "):
        failed_over(kind, has=2).prove(bed, trials)  # type: ignore[arg-type]
    lossless = failed_over(kind)
    lossless.dropped = 0
    with refused("replication lost nothing"):
        lossless.prove(bed, trials)  # type: ignore[arg-type]


def test_a_commit_that_did_not_wait_for_the_replica_was_asynchronous() -> None:
    fault = failed_over(DbFailoverSync)
    fault.waiting = 1
    with refused("1 of 2 commits waited"):
        fault.prove(SimpleNamespace(), [trial(), trial()])  # type: ignore[arg-type]
    for first, deferred, misses in (("unknown", 0, 0), ("sold", 0, 1), ("sold", 1, 0)):
        one = trial(buyers=[buyer(first)], strategy={"deferred": bool(deferred)})
        DbFailoverSync().act(one)
        assert len(one.misses) == misses
