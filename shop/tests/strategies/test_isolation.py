"""Every interleaving of two buyers, on real PostgreSQL: which strategies hold, and where not."""

from __future__ import annotations

import os
from functools import partial
from urllib.parse import urlsplit

import pytest
from django.db import connection

from shop.demo.interleaving import Interleaving
from shop.demo.schedules import SCHEDULES, Run, Scheduler
from shop.strategies import STRATEGIES
from shop.tests.node import run
from shop.tests.till import APPLE, books, buy, committed, open_sale

pytestmark = committed

#: In how many of the 20 interleavings a strategy violates; those not named: in none.
#: `process` is among those: its two buyers are threads of one process here, and there it is exact.
VIOLATES = {"none": 18, "redis-in-transaction": 18}
SERIAL = {"AAABBB", "BBBAAA"}
#: Those that let both read; the second one waits at its write. All others wait at the read.
WAIT_AT_THE_WRITE = {
    *("none", "version", "rollback", "conditional", "serializable", "counter", "buckets"),
}
#: Those that wait for each other only where there is no unit for both.
SIDE_BY_SIDE = {"buckets", "skip-locked"}


def test_two_buyers_of_three_moves_each_have_20_interleavings() -> None:
    assert len(set(SCHEDULES)) == 20
    assert set(SCHEDULES) > SERIAL
    assert set(VIOLATES) | WAIT_AT_THE_WRITE < set(STRATEGIES)


def test_every_interleaving_of_two_buyers_has_the_result_that_is_expected(lock: str) -> None:
    """For two units where A begins, for one where B does: what differs is only who is who."""
    _require_steps(lock)
    with Scheduler(lock) as scheduler:
        runs = [scheduler.run(each, units=2 if each[0] == "A" else 1) for each in SCHEDULES]
    violations = [run for run in runs if run.violates]
    first = f"the first: {violations[0]}" if violations else ""
    assert len(violations) == VIOLATES.get(lock, 0), first
    undersold = [str(run) for run in runs if run.report.undersold]
    assert not undersold, undersold[0]
    if lock in VIOLATES:
        assert {run.schedule for run in runs} - {run.schedule for run in violations} == SERIAL
    if lock == "redis-in-transaction":
        for each in runs:
            assert each.violates == read_between_release_and_commit(each), each


def test_the_second_buyer_does_wait_wherever_the_schedules_say_so(
    lock: str,
) -> None:
    """Or the schedules would be serial ones by another name, and every strategy exact."""
    _require_steps(lock)
    with Scheduler(lock) as scheduler:
        run = scheduler.run("ABBAAB", units=1 if lock in SIDE_BY_SIDE else 2)
    if lock in WAIT_AT_THE_WRITE:
        assert run.log[:5] == [
            *("A after_read", "B after_read", "B at_commit", "A waits", "B end"),
        ]
    else:
        steps = [step for step in run.log if step != "A unlocked_before_commit"]
        assert steps[:3] == ["A after_read", "B waits", "A at_commit"]


def _require_steps(lock: str) -> None:
    if STRATEGIES[lock].deferred:
        pytest.skip("its purchases are one script in Redis: there is nothing to interleave")


def read_between_release_and_commit(run: Run) -> bool:
    """Whether one buyer read after the other's release and before the other's commit."""
    at = run.log.index
    return any(
        at(f"{one} unlocked_before_commit") < at(f"{two} after_read") < at(f"{one} end")
        for one, two in ("AB", "BA")
        if f"{one} unlocked_before_commit" in run.log
    )


BUY_IN_A_SECOND_PROCESS = """
import django
django.setup()
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt
print(check_out(Attempt("apple", "B", "process")).stock_seen)
"""


def test_a_lock_inside_one_process_does_not_stop_a_second_process() -> None:
    open_sale(1)
    database = urlsplit(os.environ["DATABASE_URL"])
    database = database._replace(path=f"/{connection.settings_dict['NAME']}")
    with Interleaving() as threads:
        a = threads.enter("A", partial(buy, lock="process", product=APPLE)).runs_to("after_read")
        other = run(
            "-c",
            BUY_IN_A_SECOND_PROCESS,
            DATABASE_URL=database.geturl(),
            REDIS_URL=os.environ["REDIS_URL"],
            SHOP_DB_POOL="0",
        )
        assert (other.stdout, other.returncode) == ("1\n", 0), other.stderr
        assert a.finishes().status == 201
    assert books() == (2, 0), "two orders for one unit"
