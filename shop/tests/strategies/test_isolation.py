"""Every interleaving of two buyers on real PostgreSQL, under every strategy."""

import pytest

from shop.schedules.two_buyers import SCHEDULES, ScheduleRun, run_schedule
from shop.strategies import STRATEGIES
from shop.tests.purchases import committed

pytestmark = committed

#: The schedules in which one buyer's purchase ends before the other's begins.
SERIAL = {"AAABBB", "BBBAAA"}
#: If the second buyer waits at its read, it can make no move until the first has committed, and
#: many schedules run alike. These six do not.
BLOCKED_READ_SCHEDULES = ["ABBBAA", "AABBBA", "AAABBB", "BAAABB", "BBAAAB", "BBBAAA"]


def test_two_buyers_have_20_interleavings() -> None:
    """Each buyer makes three moves."""
    assert len(set(SCHEDULES)) == 20


def test_every_interleaving_has_the_expected_outcome(lock: str) -> None:
    """The number of schedules that end wrong is the strategy's `overselling_schedules`.

    Two units are on sale if A begins, and one if B begins. A schedule and its mirror image, such
    as ABBAAB and BAABBA, differ only in the names of the buyers, so together they test both stocks.
    The fixture `lock` runs the test once for every strategy.
    """
    strategy = STRATEGIES[lock]
    if strategy.deferred:
        pytest.skip("a purchase is one script in Redis, which cannot be interleaved")
    has_many_rows = strategy.fill_own_rows is not None
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
        # Only the serial schedules, in which the purchases do not overlap, end right.
        right_schedules = {run.schedule for run in runs if not run.is_wrong}
        assert right_schedules == SERIAL
    if lock == "redis-in-transaction":
        for run in runs:
            assert run.is_wrong == has_read_between_release_and_commit(run), run


def assert_one_buyer_waits(lock: str, run: ScheduleRun) -> None:
    """Assert that one buyer waits for the other.

    If the strategy waits at the write, the first buyer waits after both have read. Otherwise the
    second buyer waits at the read. Without a wait the buyers would not have competed.
    """
    first, second = run.schedule[0], run.schedule[1]
    steps = [step for step in run.log if "unlocked" not in step]
    if STRATEGIES[lock].waits_at_write:
        reads = [f"{first} after_read", f"{second} after_read"]
        assert steps[:5] == [*reads, f"{second} at_commit", f"{first} waits", f"{second} end"]
    else:
        assert steps[:3] == [f"{first} after_read", f"{second} waits", f"{first} at_commit"]


def has_read_between_release_and_commit(run: ScheduleRun) -> bool:
    """Return whether one buyer read after the other's release and before the other's commit."""
    for releaser, reader in ("AB", "BA"):
        release = f"{releaser} unlocked_before_commit"
        if release in run.log:
            steps = [release, f"{reader} after_read", f"{releaser} end"]
            positions = [run.log.index(step) for step in steps]
            if positions == sorted(positions):
                return True
    return False
