"""db-kill, db-failover, fence-ahead: PostgreSQL ends connections, fails over, is ahead of Redis."""

from urllib.parse import urlsplit

from psycopg.conninfo import make_conninfo

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, VICTIMS, each, wait_for
from loadtest.faults.trial import Trial
from loadtest.stack.node import StackError, manage
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
    stop = ""
    #: What a last buyer is answered first, and what the last orders show.
    answer = "sold"
    shown = ", and lacks the {} orders that were acknowledged last"

    def arm(self) -> None:
        self.database = urlsplit(self.testbed.database_url).path.removeprefix("/")
        here = make_conninfo(host=str(self.testbed.postgres_socket.parent))
        self.first = self._copy("first", of=here)
        self.replication = self.opened.enter_context(Proxy(self.first.socket))
        port = self.replication.port
        of = make_conninfo(host="127.0.0.1", port=port, application_name=REPLICA)
        self.second = self._copy("second", of=of, follows=True)
        self.second.catch_up_with(self.first)
        self.way = self.opened.enter_context(Proxy(self.first.socket))
        url = f"postgresql://postgres@{self.way.address}/{self.database}"
        self.opened.callback(self.testbed.restart, RIVALS)
        self.testbed.restart(RIVALS, DATABASE_URL=url, SHOP_DB_POOL=POOL)
        self.testbed.nodes[VICTIMS].stop_settling()  # it would settle into the old database

    def _copy(self, name: str, *, of: str, follows: bool = False) -> PostgresCopy:
        folder = self.testbed.folder / self.run  # a copy of an earlier one would be started again
        folder.mkdir(exist_ok=True)
        server = PostgresCopy(folder / name, runtime=folder, of=of, follows=follows)
        self.opened.callback(server.stop)
        server.start()
        embedded.adopt(server.pid)
        return server

    def fire(self) -> None:
        """Everybody's last buyer comes, whose order does not reach the replica."""
        self.second.catch_up_with(self.first)
        self.replication.black_hole()
        for trial in self.trials:
            trial.send(trial.buyer("late"))
        behind = "not every last buyer got so far"
        self.require_soon(lambda: self._last() >= len(self.trials), behind)
        self.dropped = self.replication.dropped
        self.first.kill()
        self.second.promote()
        self.has = self._count(self.second)  # before a consumer writes what it could not
        self.way.switch(self.second.socket)

    def _last(self) -> int:
        """How many of the last buyers were answered and have their order: one that was promised is
        written a moment after the answer."""
        sold = sum(trial.buyers[-1].first == "sold" for trial in self.trials)
        return min(sold, self._count(self.first))

    def _count(self, server: PostgresCopy) -> int:
        """How many of the last orders a server has."""
        late = f"FROM purchase_history WHERE idempotency_key LIKE '{self.run}/%/late'"
        return int(server.sql(f"SELECT count(*) {late}", self.database)[0][0])

    def prove(self) -> str:
        count = len(self.trials)
        self.require(self.dropped, "replication lost nothing")
        recovers = self.second.sql("SELECT pg_is_in_recovery()")[0][0]
        self.require(not recovers, "the replica was not promoted")
        self.require(not self.has, f"the replica has {self.has} of the {count} last orders")
        return (
            f"{self.dropped} bytes of replication never arrived; the replica is no longer in "
            f"recovery{self.shown.format(count)}"
        )

    def act(self, trial: Trial) -> None:
        """No buyer of this fault is stopped; the last ones have been answered, or cut off."""
        late = trial.buyers[-1]
        wait_for(lambda: late.first, 10)
        if late.first != self.answer and not (late.first == "sold" and trial.strategy["deferred"]):
            trial.miss(f"the last buyer was answered {late.first}")


class DbFailoverSync(DbFailover):
    """The same with synchronous_standby_names: a commit is acknowledged when the replica has it.
    The last buyers wait for that, are cut off, and ask again with their keys."""

    name = "db-failover@sync"
    title = "the same, and the replica is synchronous"
    answer = "unknown"
    shown = "; {} commits waited for it when the server was killed"

    def arm(self) -> None:
        super().arm()
        self.first.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{REPLICA}'")
        self.first.sql("SELECT pg_reload_conf()")
        state = "SELECT sync_state FROM pg_stat_replication"
        self.require_soon(lambda: self.first.sql(state) == [("sync",)], "it is asynchronous")

    def _last(self) -> int:
        """How many commits wait for the replica."""
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        return int(self.first.sql(waits)[0][0])


class FenceAhead(Fault):
    """As after a move to a Redis that is empty and whose clock is behind: every new fence is lower
    than the database's. Every holder is refused as stale, and so nothing is sold. It ends by
    itself only after that hour; see fence-ahead@raised."""

    name = "fence-ahead"
    title = f"the database's fence is {AHEAD:g} s ahead of Redis's clock"
    stop = ""
    #: The command that the buyers' answer names, for the operator.
    way_out = "manage.py raise_fence"

    def fire(self) -> None:
        fence = round((self._clock() + AHEAD) * 1_000_000)
        update = f"UPDATE product SET fence = {fence} WHERE name LIKE '%-{self.run}' RETURNING 1"
        self.testbed.sql(update)

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

    def observed(self) -> str:
        refused = sum(not (trial.missing or trial.wrong) for trial in self.trials)
        return f"{refused} buyers were answered lost, with {self.way_out} as the way out"

    def ahead(self) -> float:
        """Seconds by which the lowest fence is ahead of Redis's clock."""
        found = self.testbed.sql(f"SELECT min(fence) FROM product WHERE name LIKE '%-{self.run}'")
        return float(found[0][0]) / 1_000_000 - self._clock()

    def _clock(self) -> float:
        """Redis's clock, in seconds."""
        seconds, microseconds = self.ask("TIME")
        return int(seconds) + int(microseconds) / 1_000_000


class FenceAheadRaised(FenceAhead):
    """The same, and an operator runs manage.py raise_fence for each product, while the shop runs.
    The database's fence stays as it is."""

    name = "fence-ahead@raised"
    title = f"the same, and an operator runs {FenceAhead.way_out}"

    def heal(self) -> None:
        each(self.trials, self.raise_fence)
        ahead = self.ahead()
        if ahead < AHEAD - 120:
            for trial in self.trials:
                trial.wrong.append(f"the database's fence was lowered: {ahead:.0f} s ahead")

    def observed(self) -> str:
        raised = sum(not trial.missing for trial in self.trials)
        return f"{super().observed()}; the command ran for {raised} products"

    def raise_fence(self, trial: Trial) -> None:
        """What the operator does. A trial whose command did not raise a fence shows nothing."""
        words = ("raise_fence", trial.product, "--lock", trial.lock)
        environment, log = self.testbed.nodes[RIVALS].environment, self.testbed.log
        try:
            said = manage(*words, environment=environment, log=log, timeout=COMMAND_TIMEOUT)
        except StackError as error:
            said = str(error)
        if "was raised" not in said:
            trial.miss(f"raise_fence: {said.strip()}")
