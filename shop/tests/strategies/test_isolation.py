"""Every interleaving of two buyers, on real PostgreSQL: which strategies hold, and where not."""

import pytest

from shop.demo.schedules import SCHEDULES, Run, run_schedule
from shop.strategies import STRATEGIES
from shop.tests.till import committed

pytestmark = committed

#: In how many of the 20 interleavings a strategy violates; those not named: in none.
#: `process` is among those: its two buyers are threads of one process here, and there it is exact.
VIOLATES = {"none": 18, "redis-in-transaction": 18}
SERIAL = {"AAABBB", "BBBAAA"}
#: All that differs where the second one waits at its read, whatever moves it is given meanwhile.
WHEN_THE_SECOND_COMES = ["ABBBAA", "AABBBA", "AAABBB", "BAAABB", "BBAAAB", "BBBAAA"]
#: Those that let both read; the second one waits at its write. All others wait at the read.
WAIT_AT_THE_WRITE = {
    *("none", "version", "rollback", "conditional", "serializable", "counter", "buckets"),
}
#: Those that wait for each other only where there is no unit for both.
SIDE_BY_SIDE = {"buckets", "skip-locked"}


def test_two_buyers_of_three_moves_each_have_20_interleavings() -> None:
    assert len(set(SCHEDULES)) == 20
    assert set(VIOLATES) | WAIT_AT_THE_WRITE < set(STRATEGIES)


def test_every_interleaving_of_two_buyers_has_the_result_that_is_expected(lock: str) -> None:
    """For two units where A begins, for one where B does: what differs is only who is who."""
    if STRATEGIES[lock].deferred:
        pytest.skip("its purchases are one script in Redis: there is nothing to interleave")
    differ = lock in WAIT_AT_THE_WRITE | SIDE_BY_SIDE | {*VIOLATES}
    schedules = SCHEDULES if differ else WHEN_THE_SECOND_COMES
    runs = [run_schedule(lock, each, units=2 if each[0] == "A" else 1) for each in schedules]
    contended = "BAABBA" if lock in SIDE_BY_SIDE else "ABBAAB" if differ else "ABBBAA"
    assert_the_second_one_waits(lock, next(run for run in runs if run.schedule == contended))
    violations = [run for run in runs if run.violates]
    first = f"the first: {violations[0]}" if violations else ""
    assert len(violations) == VIOLATES.get(lock, 0), first
    assert [run for run in runs if run.report.undersold] == []
    if lock in VIOLATES:
        assert {run.schedule for run in runs} - {run.schedule for run in violations} == SERIAL
    if lock == "redis-in-transaction":
        for each in runs:
            assert each.violates == read_between_release_and_commit(each), each


def assert_the_second_one_waits(lock: str, run: Run) -> None:
    """Or the schedules would be serial ones by another name, and every strategy exact."""
    one, two = run.schedule[0], run.schedule[1]
    steps = [step for step in run.log if "unlocked" not in step]
    if lock in WAIT_AT_THE_WRITE:
        read = [f"{one} after_read", f"{two} after_read"]
        assert steps[:5] == [*read, f"{two} at_commit", f"{one} waits", f"{two} end"]
    else:
        assert steps[:3] == [f"{one} after_read", f"{two} waits", f"{one} at_commit"]


def read_between_release_and_commit(run: Run) -> bool:
    """Whether one buyer read after the other's release and before the other's commit."""
    at = run.log.index
    return any(
        at(f"{one} unlocked_before_commit") < at(f"{two} after_read") < at(f"{one} end")
        for one, two in ("AB", "BA")
        if f"{one} unlocked_before_commit" in run.log
    )
