"""A short stress test of each kind of lock, and tests of its checker with planted violations."""

from typing import Any

import pytest

from .stress import LOCK_KINDS, PROCESS_COUNT, judge, run

#: The events that the processes write when they end. No process has anything left.
CLEAN_ENDS = [{"left": {"waiters": 0}}] * PROCESS_COUNT


@pytest.mark.parametrize("lock_kind", LOCK_KINDS)
def test_stressed_lock_has_one_holder_at_a_time(lock_kind: str) -> None:
    """Run the stress test for 6 s. `python -m locks.tests.stress --seconds 300` runs it longer."""
    summary = run(lock_kind, seconds=6)
    assert summary["wrong"] == []
    assert summary["writes"] > 10


def make_check_event(fence: int, at: float, token: str = "") -> dict[str, Any]:
    """Return the event that a check of the lease with this fence passed at the second `at`.

    Events with the same fence belong to the same lease, unless they have different tokens.
    """
    return {"token": token or f"token of fence {fence}", "fence": fence, "at": at}


@pytest.mark.parametrize(
    ("planted_events", "violation"),
    [
        # A check of the first lease passes after the first check of the second lease.
        (
            [make_check_event(1, 0.0), make_check_event(1, 1.0), make_check_event(2, 0.5)],
            "was valid until",
        ),
        (
            [make_check_event(1, 0.0), make_check_event(2, 0.5), make_check_event(1, 1.0)],
            "was valid until",
        ),
        ([make_check_event(2, 0.0), make_check_event(1, 0.5)], "must be higher"),
        ([make_check_event(1, 0.0), make_check_event(1, 0.5, "another")], "must be higher"),
        # Longer than LONGEST_GAP_SECONDS, which is 5 s.
        ([make_check_event(1, 0.0), make_check_event(2, 5.5)], "was not used for 5.50 s"),
        ([{"left": {"waiters": 1}}], "left behind"),
    ],
    ids=["overlap", "overlap, events in order", "lower fence", "same fence", "gap", "leftover"],
)
def test_planted_violation_is_reported(
    planted_events: list[dict[str, Any]], violation: str
) -> None:
    """The events contain one violation, and the checker reports it."""
    messages = judge([*planted_events, *CLEAN_ENDS])["wrong"]
    assert any(violation in message for message in messages)


def test_two_leases_one_after_the_other_are_no_violation() -> None:
    events = [make_check_event(1, 0.0), make_check_event(1, 0.4), make_check_event(2, 0.5)]
    assert judge([*events, *CLEAN_ENDS])["wrong"] == []


def test_process_that_hung_is_reported() -> None:
    """One of the processes has not written the event of its end."""
    assert "did not end by themselves" in judge(CLEAN_ENDS[1:])["wrong"][0]


def test_lost_write_is_reported() -> None:
    """Each of the five writes added 1, but the counter is 4."""
    assert judge(CLEAN_ENDS, counter=4, writes=5)["wrong"] == ["the counter is 4 after 5 writes"]
