"""partition, partition-db, slow-write, quorum: the network between a node and a server."""

import select
import time
from typing import Any

import psycopg

from loadtest.faults import measure
from loadtest.faults.fault import Fault, span
from loadtest.faults.testbed import ANSWER_TIMEOUT, TTL, wait_for
from loadtest.faults.trial import Trial
from loadtest.stack.client import Strategy
from servers.proxy.proxy import Proxy

#: Seconds after which the shop's client gives up on a silent PostgreSQL: REPLY_TIMEOUT of
#: shop/ops/postgres.py. Until then a watchdog renews for a holder that only waits.
REPLY_TIMEOUT = 9.0
#: Seconds for which RedisLock renews here; less than REPLY_TIMEOUT, so that its effect shows.
MAX_HOLD = 2.0
#: Seconds that two slow cores may add.
SLACK = 3.0
#: Seconds for each chunk between node A and PostgreSQL, in each direction.
DELAY = 0.8


class Partition(Fault):
    """A black hole between node A and Redis: no byte passes, no connection is closed. The holder
    still reaches the database, so it goes on; its renewals and its release do not arrive.

    before  bytes that fell into black holes until it was proved
    """

    name = "partition"
    title = "a black hole between the holder's node and Redis"
    takes_the_lock = True
    before = 0

    @property
    def proxy(self) -> Proxy:
        """What becomes the black hole."""
        return self.testbed.redis[self.node]

    def fire(self) -> None:
        self.healing.callback(self.proxy.pass_on)
        self.proxy.black_hole()

    def prove(self) -> str:
        other = self.testbed.redis[1 - self.node]
        self.require(not measure.run_id(self.proxy), "Redis answers through node A's proxy")
        self.require(measure.run_id(other), "Redis does not answer node B either")
        self.before = self.proxy.dropped
        return "Redis answers a PING by the way of node B, and none by that of node A"

    def meet(self, trial: Trial) -> None:
        """Node A sells nothing without the lock; node B sells when the lock has expired."""
        cut_off = trial.send(trial.buyer("cut-off"), self.node)
        super().meet(trial)
        wait_for(lambda: cut_off.first, 10)
        if cut_off.first not in trial.without_reply:
            trial.wrong.append(f"a buyer of node A was answered {cut_off.first} without Redis")

    def heal(self) -> None:
        """Where nothing fell into the black hole, no trial shows anything."""
        for trial in self.trials if self.proxy.dropped == self.before else ():
            trial.miss("node A sent nothing into the black hole")
        super().heal()

    def observed(self) -> str:
        return f"{self.proxy.dropped - self.before} bytes of node A never arrived"


class PartitionDb(Partition):
    """A black hole between node A and PostgreSQL: no byte passes, no connection is closed, and the
    holders hang in their next statement. They still reach their locks' servers, so watchdogs renew.

    How long nobody else can buy is measured: RedisLock's `max_hold` bounds it to that and a ttl,
    the reply timeout of the shop's connections bounds it for every lock.
    """

    name = "partition-db"
    title = "a black hole between the holder's node and PostgreSQL"
    takes_the_lock = True  # max_hold does, from its victim
    recovery = True

    @property
    def proxy(self) -> Proxy:
        return self.testbed.postgres

    def arm(self) -> None:
        self.hung: list[float] = []
        self.healing.callback(self.testbed.restart, self.node)
        self.healing.callback(setattr, self.testbed, "answer_timeout", ANSWER_TIMEOUT)
        self.testbed.answer_timeout = 3 * REPLY_TIMEOUT
        self.testbed.restart(self.node, SHOP_LOCK_MAX_HOLD=str(MAX_HOLD))
        self.probe = probe_of(self)

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
        rival.answered.wait(REPLY_TIMEOUT + SLACK)
        # A renewed lock keeps others out until its bound; else nothing hung.
        took, bound = trial.recovery(self.fired_at), self._bound(trial.strategy)
        if trial.strategy["renewed"] and took is not None and took < bound - TTL - 0.5:
            trial.miss(f"the victim kept others out for {took:.1f} s only")
        if trial.victim_must_be("unavailable", REPLY_TIMEOUT + SLACK):
            self.hung.append(time.monotonic() - resumed)

    def longest_recovery(self, strategy: Strategy) -> float:
        return self._bound(strategy) + SLACK

    def _bound(self, strategy: Strategy) -> float:
        """Seconds for which a holder that hangs keeps others out, by the rules of its lock."""
        return MAX_HOLD + TTL if strategy["fenced"] else REPLY_TIMEOUT

    def observed(self) -> str:
        return (
            f"{super().observed()}, its {len(self.hung)} victims were answered unavailable after "
            f"{span(self.hung)}; max_hold {MAX_HOLD:g} s"
        )


def probe_of(fault: Fault) -> psycopg.Connection[Any]:
    """A connection by node A's way to PostgreSQL, closed when the fault is cleaned up."""
    url, host = fault.testbed.database_url, fault.testbed.postgres.address
    connection = psycopg.connect(url, host=host, autocommit=True)
    fault.opened.callback(connection.close)
    return connection


class SlowWrite(Fault):
    """Kleppmann's case: no process and no lock server is slow, but the network to the database is.
    The victim sends its write within its ttl, and it arrives after the ttl."""

    name = "slow-write"
    title = f"{DELAY:g} s each way between the holder's node and PostgreSQL"

    def arm(self) -> None:
        self.probe = probe_of(self)
        self.late: list[float] = []

    def fire(self) -> None:
        """Every victim sends its write at once, within its ttl."""
        self.healing.callback(self.testbed.postgres.pass_on)
        self.testbed.postgres.delay(DELAY)
        self.sent_at = time.monotonic()
        for trial in self.trials:
            trial.resume_victim(seconds=0)

    def prove(self) -> str:
        began = time.monotonic()
        self.probe.execute("SELECT 1")
        took = time.monotonic() - began
        self.require(took >= 2 * DELAY, f"a round trip takes {took:.2f} s only")
        return f"a round trip of node A to PostgreSQL takes {took:.2f} s"

    def resume(self, trial: Trial) -> None:
        """The victims are writing. Wait for their answers before the rivals go on: else nobody
        knows whose write was later."""
        trial.resume_rivals()
        trial.first_answer(20)
        took = time.monotonic() - self.sent_at
        self.late.append(took)
        if took < 2 * DELAY:
            trial.miss(f"the victim was answered after {took:.2f} s")

    def observed(self) -> str:
        return f"the victims had their answers {span(self.late)} after they wrote"


class Quorum(Fault):
    """With two of Redlock's five servers cut off the shop sells, with three it refuses. `restart`
    shows that a server which comes back empty leads to two holders."""

    name = "quorum"
    title = "2 of 5 servers are cut off, then 3"
    stop = ""

    def fire(self) -> None:
        for proxy in self.testbed.redlock:
            self.healing.callback(proxy.pass_on)
        for proxy in self.testbed.redlock[3:]:
            proxy.black_hole()

    def prove(self) -> str:
        self._require_answering(3)
        return "2 of 5 servers do not answer, then 3"

    def act(self, trial: Trial) -> None:
        for number in (1, 2, 3):
            self.must_be_answered(trial, f"two-gone-{number}", "sold")
        self.testbed.redlock[2].black_hole()
        for number in (1, 2, 3):
            self.must_be_answered(trial, f"three-gone-{number}", "unavailable")
        self._require_answering(2)

    def _require_answering(self, wanted: int) -> None:
        answering = sum(bool(measure.run_id(proxy)) for proxy in self.testbed.redlock)
        self.require(answering == wanted, f"{answering} of 5 servers answer, not {wanted}")
