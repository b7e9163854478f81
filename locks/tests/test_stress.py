"""A short stress test of each kind of lock, and planted violations for its checker."""

from typing import Any

import pytest

from .stress import LOCK_KINDS, PROCESS_COUNT, judge, run

#: The last events of processes that ended as they should.
CLEAN_ENDS = [{"left": {"waiters": 0}}] * PROCESS_COUNT


@pytest.mark.parametrize("lock_kind", LOCK_KINDS)
def test_stressed_lock_has_one_holder_at_a_time(lock_kind: str) -> None:
    """This run takes 6 s. `python -m locks.tests.stress --seconds 300` is a longer one."""
    summary = run(lock_kind, seconds=6)
    assert summary["wrong"] == []
    assert summary["writes"] > 10


def make_check_event(fence: int, at: float, token: str = "") -> dict[str, Any]:
    """Return the event that a check of a lease with this fence passed at the second `at`."""
    return {"token": token or f"of {fence}", "fence": fence, "at": at}


@pytest.mark.parametrize(
    ("planted_events", "violation"),
    [
        ([make_check_event(1, 0.0), make_check_event(1, 0.4), make_check_event(2, 0.5)], ""),
        (
            [make_check_event(1, 0.0), make_check_event(1, 1.0), make_check_event(2, 0.5)],
            "was valid until",
        ),
        (
            [make_check_event(1, 0.0), make_check_event(2, 0.5), make_check_event(1, 1.0)],
            "was valid until",
        ),
        ([make_check_event(2, 0.0), make_check_event(1, 0.5)], "the fence fell"),
        ([make_check_event(1, 0.0), make_check_event(1, 0.5, "another")], "the fence fell"),
        ([make_check_event(1, 0.0), make_check_event(2, 5.5)], "was not used for 5.50 s"),
        ([{"left": {"waiters": 1}}], "left behind"),
    ],
)
def test_planted_violation_is_reported(
    planted_events: list[dict[str, Any]], violation: str
) -> None:
    """The checker reports one violation in these events, or none if `violation` is empty.

    It is a violation, too, that no process uses the lock for more than 5 s.
    """
    messages = judge([*planted_events, *CLEAN_ENDS])["wrong"]
    if violation:
        assert any(violation in message for message in messages)
    else:
        assert messages == []


def test_process_that_hung_is_reported() -> None:
    """One process has written no last event."""
    assert "did not end by themselves" in judge(CLEAN_ENDS[1:])["wrong"][0]


def test_lost_write_is_reported() -> None:
    assert judge(CLEAN_ENDS, counter=4, writes=5)["wrong"] == ["the counter is 4 after 5 writes"]
