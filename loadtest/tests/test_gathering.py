"""How buyers in several processes are gathered, released and counted: without Locust or servers."""

from __future__ import annotations

import time

import gevent
import pytest

from loadtest.judge.verdict import Reply
from loadtest.rush import master, wire
from loadtest.rush.master import Workers
from loadtest.rush.measure import Interval
from loadtest.rush.rush import Rush
from loadtest.rush.worker import Worker
from loadtest.target.errors import TargetError
from loadtest.tests.in_memory import Empty, Net, Staged, WorkerEnd, arrive, wait


def test_nobody_is_released_before_everybody_arrived_and_then_all_at_one_moment() -> None:
    staged = Staged(2, 4)
    arrive(staged.crowd(0), 0, 2)
    arrive(staged.crowd(1), 1)
    gevent.sleep(0.1)
    assert staged.rush.arrived == 3
    assert not staged.crowd(0).gate.is_set()
    arrive(staged.crowd(1), 3)
    wait(staged)
    moments = [staged.crowd(worker).released_at for worker in (0, 1)]
    assert all(staged.rush.released_at <= moment for moment in moments)
    staged.rush.close()
    assert sorted(staged.rush.replies) == sorted(staged.rush.key(n) for n in range(4))
    workers = staged.rush.gathering.figures()["locust_workers"]
    assert [(one["buyers"], one["same_clock"]) for one in workers] == [(2, True), (2, True)]
    assert all(one["clock_error_ms"] < 100 for one in workers)


def test_another_rush_with_the_buyers_that_stayed_hears_nothing_of_the_first() -> None:
    staged = Staged(2, 2)
    first = staged.rush
    late = staged.crowd(0)
    for worker in (0, 1):
        arrive(staged.crowd(worker), worker)
    wait(staged)
    staged.another()
    assert late.replaced.is_set()
    staged.net.to_master[wire.ARRIVED](staged.net.ids[0], {"rush": first.id, "count": 1})
    assert staged.rush.arrived == 0
    for worker in (0, 1):
        arrive(staged.crowd(worker), worker)
    wait(staged)
    assert len(staged.rush.replies) == 2


def test_a_worker_that_does_not_listen_yet_hears_of_the_rush_when_it_does() -> None:
    """Locust connects a worker before the locustfile can register what it listens to."""
    net = Net(2)
    rush = Rush(
        target=Empty(), buyers=2, stock=1, deadline_s=60, gathering=Workers(net, lambda: {})
    )
    first = Worker(WorkerEnd(net, net.ids[0]), lambda told: Empty())
    opening = gevent.spawn(rush.open_sale)
    assert not opening.ready()
    gevent.sleep(0.05)
    assert (net.sent[-1], opening.ready()) == ((net.ids[1], wire.CLOCK), False)
    second = Worker(WorkerEnd(net, net.ids[1]), lambda told: Empty())
    opening.get(timeout=10)
    assert [worker.crowd and worker.crowd.id for worker in (first, second)] == [rush.id] * 2


def test_a_worker_that_never_listens_refuses_the_rush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "ANSWER_TIMEOUT", 0.2)
    net = Net(1)
    rush = Rush(
        target=Empty(), buyers=1, stock=1, deadline_s=60, gathering=Workers(net, lambda: {})
    )
    with pytest.raises(master.WorkerLost, match="worker 0 on host does not answer: nobody was"):
        rush.open_sale()
    assert {kind for _, kind in net.sent} == {wire.CLOCK}


def test_a_worker_lost_before_the_release_refuses_the_rush() -> None:
    staged = Staged(2, 4)
    released = arrive(staged.crowd(0), 0, 2)
    staged.net.cut.add(staged.net.ids[1])
    wait(staged)
    with pytest.raises(master.WorkerLost, match="worker 1 on host is gone, and with it 2 of 4"):
        staged.rush.result()
    staged.rush.close()
    gevent.joinall(released, timeout=5)
    assert staged.rush.replies == {}, "nobody bought"
    assert "worker 1 on host is gone" in staged.gathering.refusal()


def test_a_worker_that_does_not_answer_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "ANSWER_TIMEOUT", 0.3)
    staged = Staged(2, 2)
    for worker in (0, 1):
        arrive(staged.crowd(worker), worker)
    staged.net.deaf.add(staged.net.ids[1])
    wait(staged)
    assert "worker 1 on host does not answer" in str(staged.rush.broken)
    gevent.sleep(0.3)
    assert not any(staged.crowd(worker).gate.is_set() for worker in (0, 1)), "nobody was released"


def test_no_buyer_is_released_before_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by a timer that is early."""
    staged = Staged(1, 1)
    monkeypatch.setattr(gevent, "sleep", lambda _: None)
    at = time.monotonic() + 0.05
    staged.crowd(0).release(at)
    assert staged.crowd(0).released_at >= at


def test_of_a_worker_lost_in_the_rush_those_who_were_not_answered_may_have_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(master, "SETTLE", 0.1)
    staged = Staged(2, 4)
    arrive(staged.crowd(0), 0, 2)
    arrive(staged.crowd(1), 1)
    gevent.spawn(staged.crowd(1).arrive)  # buyer 3 asks nothing that is heard of
    gevent.sleep(0.2)
    staged.rush.gate.wait(5)
    gevent.sleep(0.2)
    staged.net.cut.add(staged.net.ids[1])
    wait(staged)
    staged.rush.close()
    run = staged.rush.result()
    assert (run["verdict"], run["arrived"], run["never_answered"]) == ("unknown", 4, 1)
    assert run["why"].startswith("worker 1 on host is gone, 1 of its buyers had no answer: ")
    (open_one,) = [one for one in staged.rush.requests if one.answered is None]
    assert open_one.attempt == staged.rush.key(3)
    assert open_one.sent == int(staged.rush.released_at * 1e9)


def test_a_worker_lost_after_its_last_answer_changes_nothing() -> None:
    staged = Staged(2, 2)
    arrive(staged.crowd(1), 1)
    gevent.spawn(staged.crowd(0).arrive)
    staged.rush.gate.wait(5)
    gevent.sleep(0.2)
    staged.net.cut.add(staged.net.ids[1])
    gevent.sleep(3 * master.LOOK_EVERY + 0.3)
    assert staged.gathering.members[staged.net.ids[1]].lost
    assert not staged.rush.finished.is_set()
    crowd, key = staged.crowd(0), staged.rush.key(0)
    crowd.leave(Reply(key, "sold_out"), Interval(0.0, 0.1, 0.1))
    wait(staged)
    assert staged.rush.lost == []


def test_what_was_asked_and_not_answered_is_collected_when_a_rush_is_stopped() -> None:
    staged = Staged(2, 2)
    for worker in (0, 1):
        gevent.spawn(staged.crowd(worker).arrive)
    staged.rush.gate.wait(5)
    gevent.sleep(0.1)
    staged.crowd(1).ask(staged.rush.key(1))
    staged.rush.stop()
    staged.rush.close()
    assert [one.attempt for one in staged.rush.requests] == [staged.rush.key(1)]
    assert staged.crowd(0).over(), "nobody asks again"


def test_when_locust_stops_since_its_last_worker_is_missing_the_rush_names_the_worker() -> None:
    staged = Staged(1, 2)
    staged.net.deaf.add(staged.net.ids[0])
    staged.gathering.stopping()
    staged.rush.stop()
    assert not staged.rush.stopped
    assert "worker 0 on host sends no heartbeats, and with it 2 of 2" in str(staged.rush.broken)


def test_a_wrong_target_in_a_worker_ends_the_rush() -> None:
    staged = Staged(2, 4)
    staged.crowd(1).break_off(TargetError("my_shop.py, line 3: repair it"))
    wait(staged)
    with pytest.raises(TargetError, match="line 3"):
        staged.rush.result()
