"""`partition-db`: a black hole between the holder's node and PostgreSQL."""

import select
import time

from loadtest.faults.fault import span
from loadtest.faults.kinds.partition import PartitionFault
from loadtest.faults.testbed import ANSWER_TIMEOUT, TTL
from loadtest.faults.trial import Trial
from loadtest.stack.client import StrategyFacts
from servers.proxy.proxy import Proxy

#: Seconds after which the shop's client gives up on a silent PostgreSQL: REPLY_TIMEOUT of
#: shop/ops/postgres.py. Until then a watchdog renews for a holder that only waits.
REPLY_TIMEOUT = 9.0
#: Seconds for which RedisLock renews here; less than REPLY_TIMEOUT, so that its effect shows.
MAX_HOLD = 2.0
#: Seconds that two slow cores may add.
SLACK_SECONDS = 3.0


class PartitionDbFault(PartitionFault):
    """A black hole between node A and PostgreSQL: no byte passes, no connection is closed, and the
    holders hang in their next statement. They still reach their locks' servers, so watchdogs renew.

    The time without a sale is measured: RedisLock's `max_hold` bounds it to that and a ttl,
    the reply timeout of the shop's connections bounds it for every lock.
    """

    name = "partition-db"
    title = "a black hole between the holder's node and PostgreSQL"
    takes_the_lock = True  # max_hold does, from its victim
    recovery = True

    @property
    def proxy(self) -> Proxy:
        return self.testbed.database_proxy

    def arm(self) -> None:
        self.hung: list[float] = []
        self.healing.callback(self.testbed.restart, self.node)
        self.healing.callback(setattr, self.testbed, "answer_timeout", ANSWER_TIMEOUT)
        self.testbed.answer_timeout = 3 * REPLY_TIMEOUT
        self.testbed.restart(self.node, SHOP_LOCK_MAX_HOLD=str(MAX_HOLD))
        self.probe = self.open_postgres_probe()

    def prove(self) -> str:
        self.probe.pgconn.send_query(b"SELECT 1")
        readable, _, _ = select.select([self.probe.fileno()], [], [], 0.3)
        self.require(not readable, "PostgreSQL answers node A, or its connection was closed")
        self.require(self.testbed.sql("SELECT 1"), "PostgreSQL does not answer node B either")
        self.before = self.proxy.dropped
        return "PostgreSQL answers past node A's proxy; through it no answer and no close"

    def act(self, trial: Trial) -> None:
        """Let the victim go into the black hole, and a rival ask until it has bought."""
        resumed = time.monotonic()
        trial.resume_victim(seconds=0)
        rival = trial.send(trial.buyer("rival-1"))
        rival.is_done.wait(REPLY_TIMEOUT + SLACK_SECONDS)
        # A renewed lock keeps others out until its bound; else nothing hung.
        took, bound = trial.recovery(self.fired_at), self._bound(trial.strategy)
        if trial.strategy["renewed"] and took is not None and took < bound - TTL - 0.5:
            trial.miss(f"the victim kept others out for {took:.1f} s only")
        if trial.victim_must_be("unavailable", REPLY_TIMEOUT + SLACK_SECONDS):
            self.hung.append(time.monotonic() - resumed)

    def longest_recovery(self, strategy: StrategyFacts) -> float:
        return self._bound(strategy) + SLACK_SECONDS

    def _bound(self, strategy: StrategyFacts) -> float:
        """Seconds for which a holder that hangs keeps others out, by the rules of its lock."""
        return MAX_HOLD + TTL if strategy["fenced"] else REPLY_TIMEOUT

    def observed(self) -> str:
        return (
            f"{super().observed()}, its {len(self.hung)} victims were answered unavailable after "
            f"{span(self.hung)}; max_hold {MAX_HOLD:g} s"
        )
