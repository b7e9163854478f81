"""db-kill, db-failover, fence-ahead: PostgreSQL ends connections, fails over, is ahead of Redis."""

from urllib.parse import urlsplit

from psycopg.conninfo import make_conninfo

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, VICTIMS, each, until
from loadtest.faults.trial import Trial
from loadtest.stack.database import manage
from loadtest.stack.node import StackError
from servers import embedded
from servers.postgres_copy import PostgresCopy
from servers.proxy.proxy import Proxy

#: Seconds by which the database's fence is ahead.
AHEAD = 3600.0
#: Seconds for manage.py raise_fence.
COMMAND_TIMEOUT = 60.0
REPLICA = "replica"
#: Connections of node B: the last buyer of every strategy may wait in one.
POOL = "30"
KILL = """
    SELECT pid, pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'oversold-{}'
    AND state = 'idle in transaction'
"""
LEFT = "SELECT pid FROM pg_stat_activity WHERE pid IN ({})"


class DbKill(Fault):
    """pg_terminate_backend for every victim, which is stopped inside its transaction."""

    name = "db-kill"
    title = "pg_terminate_backend of the holder"
    grace = 0.5

    def fire(self) -> None:
        name = self.testbed.nodes[self.node].name
        self.killed = [pid for pid, gone in self.testbed.sql(KILL.format(name)) if gone]

    def prove(self) -> str:
        killed, victims = len(self.killed), len(self.trials)
        ended = f"{killed} backends were ended for {victims} victims"
        self.require(killed >= max(1, victims), ended)
        left = self.testbed.sql(LEFT.format(",".join(map(str, self.killed))))
        self.require(not left, f"{len(left)} of these backends are still there")
        return f"{killed} backends of node A were ended in their transactions"

    def resume(self, trial: Trial) -> None:
        super().resume(trial)
        # A victim stopped before its COMMIT cannot know whether the COMMIT went through.
        allowed = "unknown" if trial.stop == "before_commit" else "unavailable"
        first = trial.first_answer(10)
        if first == "sold":
            trial.miss("the victim sold: its backend was not ended")
        elif first != allowed:
            trial.wrong.append(f"the victim's first answer was {first}")


class DbFailover(Fault):
    """Node B moves to a copy of the database that has a replica. Replication becomes a black
    hole, one more buyer buys and is answered, the server is killed and the replica promoted. An
    asynchronous replica lacks these orders, and no lock and no database strategy can know that.
    Redis keeps its data.
    """

    name = "db-failover"
    title = "PostgreSQL is killed, its asynchronous replica lags and is promoted"

    def arm(self) -> None:
        self.database = urlsplit(self.testbed.database_url).path.removeprefix("/")
        here = make_conninfo(host=str(self.testbed.postgres_socket.parent))
        self.first = self._copy("first", of=here)
        self.replication = self._proxy(self.first)
        host, port = self.replication.address.split(":")
        of = make_conninfo(host=host, port=port, application_name=REPLICA)
        self.second = self._copy("second", of=of, follows=True)
        self.second.catch_up_with(self.first)
        self.way = self._proxy(self.first)
        url = f"postgresql://postgres@{self.way.address}/{self.database}"
        self.testbed.restart(RIVALS, DATABASE_URL=url, SHOP_DB_POOL=POOL)
        self.testbed.nodes[VICTIMS].stop_settling()  # it would settle into the old database

    def enter(self, trial: Trial) -> None:
        self.require_a_sale(trial)

    def fire(self) -> None:
        self.second.catch_up_with(self.first)
        self.replication.black_hole()
        each(self.trials, self._buys_last)
        keys = ", ".join(f"'{trial.attempts}/late'" for trial in self.trials)
        self.late = f"SELECT count(*) FROM purchase_history WHERE idempotency_key IN ({keys})"
        self._wait_for_the_last()
        self.dropped = self.replication.dropped
        self.first.kill()
        self.second.promote()
        self.has = self._count(self.second)  # before a consumer writes what it could not
        self.way.switch(self.second.socket)

    def _buys_last(self, trial: Trial) -> None:
        """One more buyer, whose order does not reach the replica."""
        outcome = trial.ask_once("late")
        if outcome != "sold":
            trial.miss(f"the last buyer was answered {outcome}")

    def _wait_for_the_last(self) -> None:
        """A promised order is written a moment after the answer."""
        until(lambda: self._count(self.first) == len(self.trials), 10)
        self.had = self._count(self.first)

    def prove(self) -> str:
        dropped = self._has_failed_over()
        self.require(self.had == len(self.trials), f"{self.had} of the last orders were there")
        self.require(not self.has, f"the replica has {self.has} of the {self.had} last orders")
        return f"{dropped}, and lacks the {self.had} orders that were acknowledged last"

    def act(self, trial: Trial) -> None:
        """No buyer of this fault is stopped."""

    def clean_up(self) -> None:
        self.testbed.restart(RIVALS)
        super().clean_up()

    def _has_failed_over(self) -> str:
        self.require(self.dropped, "replication lost nothing")
        recovers = self.second.sql("SELECT pg_is_in_recovery()")[0][0]
        self.require(not recovers, "the replica was not promoted")
        lost = f"{self.dropped} bytes of replication never arrived"
        return f"{lost}; the replica is no longer in recovery"

    def _count(self, server: PostgresCopy) -> int:
        """How many of the last orders a server has."""
        return int(server.sql(self.late, self.database)[0][0])

    def _copy(self, name: str, *, of: str, follows: bool = False) -> PostgresCopy:
        folder = self.testbed.folder / self.name.replace("@", "-")
        folder.mkdir(exist_ok=True)
        server = PostgresCopy(folder / name, runtime=folder, of=of, follows=follows)
        self.opened.callback(server.stop)
        server.start()
        embedded.adopt(server.pid)
        return server

    def _proxy(self, server: PostgresCopy) -> Proxy:
        return self.opened.enter_context(Proxy(server.socket))


class DbFailoverSync(DbFailover):
    """The same with synchronous_standby_names: a commit is acknowledged when the replica has it.
    The last buyers wait for that, are cut off, and ask again with their keys."""

    name = "db-failover@sync"
    title = "the same, and the replica is synchronous"

    def arm(self) -> None:
        super().arm()
        self.first.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{REPLICA}'")
        self.first.sql("SELECT pg_reload_conf()")
        state = "SELECT sync_state FROM pg_stat_replication"
        self.require_soon(lambda: self.first.sql(state) == [("sync",)], "it is asynchronous")

    def _buys_last(self, trial: Trial) -> None:
        trial.send(trial.buyer("late"))

    def _wait_for_the_last(self) -> None:
        """Until the commit of each waits for the replica."""
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        until(lambda: self.first.sql(waits)[0][0] >= len(self.trials), 10)
        self.waiting = self.first.sql(waits)[0][0]

    def prove(self) -> str:
        dropped, count = self._has_failed_over(), len(self.trials)
        self.require(self.waiting == count, f"{self.waiting} of {count} commits waited")
        self.require(not self.has, f"the replica has {self.has} orders that nobody acknowledged")
        return f"{dropped}; {count} commits waited for it when the server was killed"

    def act(self, trial: Trial) -> None:
        late = trial.buyers[-1]
        until(lambda: bool(late.first), 10)
        if late.first not in {"unknown", *(["sold"] if trial.strategy["deferred"] else [])}:
            trial.miss(f"the last buyer was answered {late.first}")


class FenceAhead(Fault):
    """As after a move to a Redis that is empty and whose clock is behind: every new fence is lower
    than the database's. Every holder is refused as stale, and so nothing is sold. It ends by
    itself only after that hour; see fence-ahead@raised."""

    name = "fence-ahead"
    title = f"the database's fence is {AHEAD:g} s ahead of Redis's clock"
    #: The command that the buyers' answer names, for the operator.
    way_out = "manage.py raise_fence"
    refused = 0

    def enter(self, trial: Trial) -> None:
        self.require_a_sale(trial)

    def fire(self) -> None:
        fence = round((self._clock() + AHEAD) * 1_000_000)
        self.testbed.sql(f"UPDATE product SET fence = {fence} WHERE {self._ours()} RETURNING 1")

    def prove(self) -> str:
        ahead = self.ahead()
        self.require(ahead > AHEAD - 60, f"the database's fence is {ahead:.0f} s ahead only")
        return f"the database's fences are {ahead:.0f} s ahead of the TIME that Redis answers"

    def act(self, trial: Trial) -> None:
        """A buyer is refused, and the answer says why and what to do."""
        outcome, error = trial.ask_once("refused"), trial.buyers[-1].said.get("error", "")
        if outcome != "lost":
            trial.miss(f"a buyer was answered {outcome}, not lost")
        elif self.way_out not in error:
            trial.wrong.append(f"the answer does not name {self.way_out}: {error}")
        else:
            self.refused += 1

    def observed(self) -> str:
        return f"{self.refused} buyers were answered lost, with {self.way_out} as the way out"

    def ahead(self) -> float:
        """Seconds by which the lowest fence is ahead of Redis's clock."""
        found = self.testbed.sql(f"SELECT min(fence) FROM product WHERE {self._ours()}")
        return float(found[0][0]) / 1_000_000 - self._clock()

    def _clock(self) -> float:
        """Redis's clock, in seconds."""
        seconds, microseconds = self.ask("TIME")
        return int(seconds) + int(microseconds) / 1_000_000

    def _ours(self) -> str:
        """The products, for SQL: names of ours, without a quote."""
        names = ", ".join(f"'{trial.product}'" for trial in self.trials)
        return f"name IN ({names})"


class FenceAheadRaised(FenceAhead):
    """The same, and an operator runs manage.py raise_fence for each product, while the shop runs.
    The database's fence stays as it is."""

    name = "fence-ahead@raised"
    title = f"the same, and an operator runs {FenceAhead.way_out}"

    def heal(self) -> None:
        self.raised: list[Trial] = []
        each(self.trials, self.raise_fence)
        ahead = self.ahead()
        if ahead < AHEAD - 120:
            for trial in self.trials:
                trial.wrong.append(f"the database's fence was lowered: {ahead:.0f} s ahead")

    def observed(self) -> str:
        return f"{super().observed()}; the command ran for {len(self.raised)} products"

    def raise_fence(self, trial: Trial) -> None:
        """What the operator does. A trial whose command did not raise a fence shows nothing."""
        words = ("raise_fence", trial.product, "--lock", trial.lock)
        environment, log = self.testbed.nodes[RIVALS].environment, self.testbed.log
        try:
            said = manage(*words, environment=environment, log=log, timeout=COMMAND_TIMEOUT)
        except StackError as error:
            said = str(error)
        if "was raised" in said:
            self.raised.append(trial)
        else:
            trial.miss(f"raise_fence: {said.strip()}")
