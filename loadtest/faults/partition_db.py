"""partition-db: the holder's node is cut off from PostgreSQL, and keeps its lock."""

from __future__ import annotations

import select
import time

import psycopg

from loadtest.faults.fault import Fault
from loadtest.faults.partition import require_dropped
from loadtest.faults.testbed import ANSWER_TIMEOUT, TTL, until
from loadtest.faults.trial import Trial
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
    before: int | None = None
    dropped = 0

    def arm(self) -> None:
        self.hung: list[float] = []
        self.testbed.answer_timeout = 3 * REPLY_TIMEOUT
        self.testbed.restart(self.node, SHOP_LOCK_MAX_HOLD=str(MAX_HOLD))
        url, host = self.testbed.database_url, self.testbed.postgres.address
        self.probe = psycopg.connect(url, host=host)
        self.opened.callback(self.probe.close)

    def fire(self) -> None:
        self.testbed.postgres.black_hole()

    def prove(self) -> str:
        self.probe.pgconn.send_query(b"SELECT 1")
        readable, _, _ = select.select([self.probe.fileno()], [], [], 0.3)
        self.require(not readable, "PostgreSQL answers node A, or its connection was closed")
        self.require(self.testbed.sql("SELECT 1"), "PostgreSQL does not answer node B either")
        self.before = self.testbed.postgres.dropped  # less the query of this proof
        return "PostgreSQL answers past node A's proxy; through it no answer and no close"

    def act(self, trial: Trial) -> None:
        """Let the victim go into the black hole, and a rival ask until it has bought."""
        resumed = time.monotonic()
        trial.resume_victim(seconds=0)
        rival = trial.send(trial.buyer("rival-1"))
        until(rival.answered.is_set, REPLY_TIMEOUT + SLACK)
        self._require_hold(trial)
        first = trial.first_answer(REPLY_TIMEOUT + SLACK)
        if first == "unavailable":
            self.hung.append(time.monotonic() - resumed)
        else:
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

    def heal(self) -> None:
        self.dropped = require_dropped(self, self.testbed.postgres, self.before)
        self.testbed.answer_timeout = ANSWER_TIMEOUT
        self.testbed.postgres.pass_on()
        self.testbed.restart(self.node)

    def observed(self) -> str:
        if not self.hung:
            return ""
        return (
            f"{self.dropped} bytes of node A never arrived, its {len(self.hung)} victims were "
            f"answered unavailable after {min(self.hung):.1f} to {max(self.hung):.1f} s; "
            f"max_hold {MAX_HOLD:g} s, {self.measured_ttl()}"
        )
