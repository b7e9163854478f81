"""Every interleaving of second buyers, on real PostgreSQL: which strategies hold, and where not."""

import pytest

from shop.schedules.two_buyers import SCHEDULES, ScheduleRun, run_schedule
from shop.strategies import STRATEGIES
from shop.tests.purchases import committed

pytestmark = committed

SERIAL = {"AAABBB", "BBBAAA"}
#: All that differs where the second one waits at its read, whatever moves it is given meanwhile.
WHEN_THE_SECOND_COMES = ["ABBBAA", "AABBBA", "AAABBB", "BAAABB", "BBAAAB", "BBBAAA"]


def test_two_buyers_of_three_moves_each_have_20_interleavings() -> None:
    assert len(set(SCHEDULES)) == 20


def test_every_interleaving_of_two_buyers_has_the_result_that_is_expected(lock: str) -> None:
    """Two units for the orders in which A begins, one for those of B: only the names differ."""
    strategy = STRATEGIES[lock]
    if strategy.deferred:
        pytest.skip("its purchases are one script in Redis: there is nothing to interleave")
    has_many_rows = strategy.fill is not None  # buyers wait for each other only at the last units
    all_differ = strategy.waits_at_write or has_many_rows or strategy.overselling_schedules > 0
    schedules = SCHEDULES if all_differ else WHEN_THE_SECOND_COMES
    runs = [
        run_schedule(lock, schedule, units=2 if schedule[0] == "A" else 1) for schedule in schedules
    ]
    contended = "ABBAAB" if all_differ else "ABBBAA"
    if has_many_rows:
        contended = "BAABBA"
    if strategy.has_transaction:
        assert_the_second_one_waits(lock, next(run for run in runs if run.schedule == contended))
    violations = [run for run in runs if run.is_wrong]
    first = f"the first: {violations[0]}" if violations else ""
    assert len(violations) == strategy.overselling_schedules, first
    assert [run for run in runs if run.report.undersold] == []
    if violations and strategy.has_transaction:
        assert {run.schedule for run in runs} - {run.schedule for run in violations} == SERIAL
    if lock == "redis-in-transaction":
        for run in runs:
            assert run.is_wrong == read_between_release_and_commit(run), run


def assert_the_second_one_waits(lock: str, run: ScheduleRun) -> None:
    """Or the schedules would be serial ones by another name, and every strategy exact."""
    first, second = run.schedule[0], run.schedule[1]
    steps = [step for step in run.log if "unlocked" not in step]
    if STRATEGIES[lock].waits_at_write:
        read = [f"{first} after_read", f"{second} after_read"]
        assert steps[:5] == [*read, f"{second} at_commit", f"{first} waits", f"{second} end"]
    else:
        assert steps[:3] == [f"{first} after_read", f"{second} waits", f"{first} at_commit"]


def read_between_release_and_commit(run: ScheduleRun) -> bool:
    """Return whether a buyer read after the other's release and before the other's commit."""
    at = run.log.index
    return any(
        at(f"{first} unlocked_before_commit") < at(f"{second} after_read") < at(f"{first} end")
        for first, second in ("AB", "BA")
        if f"{first} unlocked_before_commit" in run.log
    )
