"""Two buyers on PostgreSQL under every strategy, in all orders of their moves (schedules).

A buyer has three moves: it reads, writes and commits. In the schedule `ABBAAB`, A reads first, then
B reads and writes, and so on.
"""

import pytest

from shop.schedules.two_buyers import SCHEDULES, ScheduleRun, run_schedule
from shop.strategies import STRATEGIES
from shop.tests.purchases import committed

pytestmark = committed

#: The schedules in which one buyer's purchase ends before the other buyer's purchase begins.
SERIAL_SCHEDULES = {"AAABBB", "BBBAAA"}
#: The schedules for strategies under which the second buyer waits at its read until the first buyer
#: has committed. Only the number of moves that the first buyer makes before that read matters: one,
#: two or three. The other schedules would run like one of these.
BLOCKED_READ_SCHEDULES = ["ABBBAA", "AABBBA", "AAABBB", "BAAABB", "BBAAAB", "BBBAAA"]


def test_two_buyers_have_20_schedules() -> None:
    """Each buyer makes three of the six moves: 6! / (3! * 3!) = 20."""
    assert len(set(SCHEDULES)) == 20


def test_strategy_oversells_in_the_expected_number_of_schedules(lock: str) -> None:
    """The number of schedules that oversell or lose a decrement is `overselling_schedules`.

    Two units are on sale if A begins, and one if B begins. A schedule and its mirror image, such
    as ABBAAB and BAABBA, differ only in the names of the buyers, so together they test both stocks.
    The fixture `lock` runs the test once for every strategy.
    """
    strategy = STRATEGIES[lock]
    if strategy.deferred:
        pytest.skip("a purchase is one script in Redis, which cannot be interleaved")
    has_many_rows = strategy.fill_own_rows is not None
    # Whether the second buyer can read before the first buyer has committed.
    both_can_read = strategy.waits_at_write or has_many_rows or strategy.overselling_schedules > 0
    schedules = SCHEDULES if both_can_read else BLOCKED_READ_SCHEDULES
    runs = [
        run_schedule(lock, schedule, units=2 if schedule[0] == "A" else 1) for schedule in schedules
    ]
    contended_schedule = "ABBAAB" if both_can_read else "ABBBAA"
    if has_many_rows:
        # Two units are in different rows, so a buyer waits only if a single unit is on sale.
        contended_schedule = "BAABBA"
    if strategy.has_transaction:
        contended_run = next(run for run in runs if run.schedule == contended_schedule)
        assert_one_buyer_waits(lock, contended_run)
    wrong_runs = [run for run in runs if run.is_wrong]
    assert len(wrong_runs) == strategy.overselling_schedules, wrong_runs[:1]
    assert [run for run in runs if run.report.undersold] == []
    if wrong_runs and strategy.has_transaction:
        correct_schedules = {run.schedule for run in runs if not run.is_wrong}
        assert correct_schedules == SERIAL_SCHEDULES
    if lock == "redis-in-transaction":
        # Its flaw: it releases the lock before the commit.
        for run in runs:
            assert run.is_wrong == has_read_between_release_and_commit(run), run


def assert_one_buyer_waits(lock: str, run: ScheduleRun) -> None:
    """Assert that one buyer waited for the other, according to the log of the run.

    If the strategy waits at the write, the first buyer waits after both have read. Otherwise the
    second buyer waits at the read. Without a wait the schedule would not test the strategy.

    lock  the name of the strategy
    """
    first, second = run.schedule[0], run.schedule[1]
    # Only `redis-in-transaction` logs `unlocked_before_commit`. A buyer does not stop there.
    steps = [step for step in run.log if "unlocked" not in step]
    if STRATEGIES[lock].waits_at_write:
        reads = [f"{first} after_read", f"{second} after_read"]
        assert steps[:5] == [*reads, f"{second} at_commit", f"{first} waits", f"{second} end"]
    else:
        assert steps[:3] == [f"{first} after_read", f"{second} waits", f"{first} at_commit"]


def has_read_between_release_and_commit(run: ScheduleRun) -> bool:
    """Return whether a buyer read after the other buyer's release and before its commit.

    At that time the lock is free, but the new stock is not visible yet.
    """
    for releaser, reader in ("AB", "BA"):
        release = f"{releaser} unlocked_before_commit"
        if release in run.log:
            steps = [release, f"{reader} after_read", f"{releaser} end"]
            positions = [run.log.index(step) for step in steps]
            if positions == sorted(positions):
                return True
    return False
