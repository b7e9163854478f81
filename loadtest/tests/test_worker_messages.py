"""What a worker of Locust and its master send each other: shares, times, answers; no Locust."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.judge.intervals import Request
from loadtest.judge.verdict import Reply
from loadtest.rush import wire
from loadtest.rush.clock import Clock
from loadtest.rush.crowd import Done, Share
from loadtest.rush.measure import Interval
from loadtest.rush.open_files import TooFewFiles, allow
from loadtest.target.errors import TargetError
from loadtest.tests.in_memory import Empty, Staged, wait


@given(st.integers(1, 60), st.integers(1, 16))
def test_every_buyer_has_one_process(buyers: int, count: int) -> None:
    shares = [Share(buyers, first, count) for first in range(count)]
    assert sorted(n for share in shares for n in share.numbers) == list(range(buyers))
    for share in shares:
        places = [share.number(place) for place in range(buyers + 1)]
        assert [number for number in places if number is not None] == list(share.numbers)


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6),
)
def test_a_clock_is_estimated_within_the_error_that_is_stated(
    ahead: float, exchanges: list[tuple[float, float]]
) -> None:
    clock, now = Clock(), 100.0
    for there, back in exchanges:
        clock.compare(now, now + there + ahead, now + there + back)
        now += there + back
    assert abs(clock.offset - ahead) <= clock.error + 1e-6
    assert clock.error == pytest.approx(min(a + b for a, b in exchanges) / 2, abs=1e-6)


def test_what_a_worker_sends_arrives_as_it_was_by_the_masters_clock() -> None:
    request = Request("rush/buyer-1", 5_000_000_000)
    request.answered, request.type, request.outcome = 6_000_000_000, "ok", "sold"
    request.order, request.fence, request.replayed = 7, 12, True
    done = Done([request], Reply("rush/buyer-1", "sold", 7), Interval(5.0, 6.0, 6.5))
    found = wire.done(wire.packed_done(done), 2.0)
    assert (found.reply, found.interval) == (done.reply, Interval(3.0, 4.0, 4.5))
    (moved,) = found.requests
    assert (moved.sent, moved.answered) == (3_000_000_000, 4_000_000_000)
    assert (moved.order, moved.fence, moved.replayed, moved.outcome) == (7, 12, True, "sold")


def test_what_opening_a_sale_sets_in_a_target_is_sent_and_nothing_else() -> None:
    target = Empty()
    before = dict(vars(target))
    target.open(3)
    target.shown.append(1)  # type: ignore[arg-type]  # filled in place
    assert wire.state(target, before) == {"ticket": "for 3", "shown": [1]}


def test_what_cannot_be_sent_is_named() -> None:
    target = Empty()
    before = dict(vars(target))
    target.client = object()  # type: ignore[attr-defined]
    with pytest.raises(TargetError, match=r"open\(\) sets self\.client to .* make it in __init__"):
        wire.state(target, before)


def test_more_open_files_than_this_machine_allows_are_refused_with_what_to_do() -> None:
    with pytest.raises(TooFewFiles, match=r"needs \d+ open files, and \d+ are allowed: sit down, "):
        allow(10**12, what="a rush", otherwise="sit down")


def test_a_worker_on_another_machine_is_told_the_moment_by_its_own_clock() -> None:
    """100 s ahead of the master's: by the master's it would release its buyers 100 s early."""
    staged = Staged(2, 2)
    moments: dict[str, float] = {}
    master_hears = staged.net.to_master[wire.CLOCK]

    def answer_from_elsewhere(id: str, data: dict[str, Any]) -> None:
        if id == staged.net.ids[1]:
            data = {**data, "there": data["there"] + 100, "machine": "elsewhere"}
        master_hears(id, data)

    staged.net.to_master[wire.CLOCK] = answer_from_elsewhere

    def note(id: str, told: dict[str, Any]) -> None:
        moments[id] = told["at"]

    for id in staged.net.ids:
        staged.net.to_worker[id, wire.GO] = partial(note, id)
    for worker in (0, 1):
        gevent.spawn(staged.crowd(worker).arrive)
    assert staged.rush.gate.wait(5)
    gevent.sleep(0.1)
    here, there = (moments[id] for id in staged.net.ids)
    assert here == staged.rush.released_at
    assert there - here == pytest.approx(100, abs=1)


def reports(staged: Staged, worker: int, buyer: int, *, ago: float) -> None:
    """A worker says that one of its buyers asked so many seconds ago, and was answered then."""
    key, sent = staged.rush.key(buyer), time.monotonic() - ago
    request = Request(key, round(sent * 1e9), round(sent * 1e9), "fail", "sold_out")
    done = Done([request], Reply(key, "sold_out"), Interval(sent, sent, sent))
    message = {"rush": staged.rush.id, "done": [wire.packed_done(done)]}
    staged.net.to_master[wire.DONE](staged.net.ids[worker], message)


@pytest.mark.parametrize("ago", [60.0, -60.0], ids=["before the release", "in the future"])
def test_a_worker_whose_times_cannot_be_true_leaves_no_verdict(ago: float) -> None:
    """Its clock, or what it says of it, is wrong: which answer came before which is not known."""
    staged = Staged(2, 2)
    for worker in (0, 1):
        gevent.spawn(staged.crowd(worker).arrive)
    staged.rush.gate.wait(5)
    while time.monotonic() < staged.rush.released_at:
        gevent.sleep(0.01)
    reports(staged, 0, 0, ago=0.0)
    assert staged.rush.doubts == []
    reports(staged, 1, 1, ago=ago)
    wait(staged)
    run = staged.rush.result()
    assert (run["verdict"], len(run["doubts"])) == ("unknown", 1)
    assert run["why"].startswith("worker 1 on host says that a buyer asked or was answered ")
    assert f" s {'before the release' if ago > 0 else 'in the future'}: " in run["why"]
