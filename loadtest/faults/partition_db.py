"""partition-db: the holder's node is cut off from PostgreSQL, and keeps its lock."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import ANSWER_TIMEOUT, TTL, VICTIMS, Testbed, until
from loadtest.faults.trial import Trial, measured_ttl
from loadtest.stack.client import Strategy

#: Seconds after which the shop's client gives up on a silent PostgreSQL: REPLY_TIMEOUT of
#: shop/ops/postgres.py. Until then a watchdog renews for a holder that only waits.
REPLY_TIMEOUT = 9.0
#: Seconds for which RedisLock renews here; less than REPLY_TIMEOUT, so that its effect shows.
MAX_HOLD = 2.0
#: Seconds that two slow cores may add.
SLACK = 3.0


class PartitionDb(Fault):
    """A black hole between node A and PostgreSQL: no byte passes, no connection is closed, and the
    holders hang in their next statement. They still reach their locks' servers, so watchdogs renew.

    How long nobody else can buy is measured: RedisLock's `max_hold` bounds it to that and a ttl,
    the reply timeout of the shop's connections bounds it for every lock.
    """

    name = "partition-db"
    title = "a black hole between the holder's node and PostgreSQL"
    asks_again = False
    takes_the_lock = True  # max_hold does, from its victim
    recovery = True

    def __init__(self) -> None:
        super().__init__()
        self.probe: psycopg.Connection[Any] | None = None
        self.before: int | None = None
        self.dropped = 0
        self.hung: list[float] = []

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.answer_timeout = 3 * REPLY_TIMEOUT
        testbed.restart(VICTIMS, SHOP_LOCK_MAX_HOLD=str(MAX_HOLD))
        self.probe = psycopg.connect(testbed.database_url, host=testbed.postgres.address)

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.postgres.black_hole()

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        assert self.probe is not None
        self.probe.pgconn.send_query(b"SELECT 1")
        readable, _, _ = select.select([self.probe.fileno()], [], [], 0.3)
        self.require(not readable, "PostgreSQL answers node A, or its connection was closed")
        self.require(testbed.sql("SELECT 1"), "PostgreSQL does not answer node B either")
        self.before = testbed.postgres.dropped  # less the query of this proof
        return "PostgreSQL answers past node A's proxy; through it no answer and no close"

    def act(self, trial: Trial) -> None:
        """Let the victim go into the black hole, and a rival ask until it has bought."""
        assert trial.victim is not None
        resumed = time.monotonic()
        trial.testbed.resume(trial.victim.attempt, trial.stop)
        rival = trial.send(trial.buyer("rival-1"))
        until(lambda: rival.answered.is_set(), REPLY_TIMEOUT + SLACK)
        self._require_hold(trial)
        if trial.victim.join(REPLY_TIMEOUT + SLACK):
            self.hung.append(time.monotonic() - resumed)
        if trial.victim.first != "unavailable":
            first = trial.victim.first or "nothing"
            trial.miss(f"the victim was answered {first}: it did not hang")

    def longest_recovery(self, strategy: Strategy) -> float:
        return self._bound(strategy) + SLACK

    def _bound(self, strategy: Strategy) -> float:
        """Seconds for which a holder that hangs keeps others out, by the rules of its lock."""
        return MAX_HOLD + TTL if strategy["fenced"] else REPLY_TIMEOUT

    def _require_hold(self, trial: Trial) -> None:
        """A renewed lock keeps others out until its bound; one that does not shows that nothing
        hung."""
        took = trial.recovery()
        if took is None:
            trial.wrong.append(f"nobody bought for {REPLY_TIMEOUT + SLACK:g} s")
        elif trial.strategy["renewed"] and took < self._bound(trial.strategy) - TTL - 0.5:
            trial.miss(f"the victim kept others out for {took:.1f} s only")

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        if self.before is not None:
            self.dropped = testbed.postgres.dropped - self.before
            for trial in trials if not self.dropped else ():
                trial.miss("node A sent nothing into the black hole")
        testbed.answer_timeout = ANSWER_TIMEOUT
        testbed.postgres.pass_on()
        if self.probe is not None:
            self.probe.close()
        testbed.restart(VICTIMS)

    def observed(self, trials: Sequence[Trial]) -> str:
        if not self.hung:
            return ""
        return (
            f"{self.dropped} bytes of node A never arrived, its {len(self.hung)} victims were "
            f"answered unavailable after {min(self.hung):.1f} to {max(self.hung):.1f} s; "
            f"max_hold {MAX_HOLD:g} s, {measured_ttl(trials)}"
        )
