"""restart, redis-down, eviction, failover, split-brain: Redis loses a held lock."""

import signal

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, VICTIMS
from loadtest.faults.trial import Trial
from servers import embedded
from servers.proxy.proxy import Proxy
from servers.sentinels import MASTER, Sentinels

FILLER = "filler"


class LostLock(Fault):
    """The lock is lost while its holder is inside, long before its ttl is over."""

    grace = 0.8
    ttl = 5.0
    takes_the_lock = True


class Restart(LostLock):
    """SIGKILL of Valkey and a start with an empty memory, on the same port.

    Of Redlock's five servers 4 and 5 are cut off while the victim locks 1, 2 and 3. Then 3 restarts
    empty and 4 and 5 are back: 3, 4 and 5 are a majority for the rival.
    """

    name = "restart"
    title = "Redis restarts empty while a holder is inside"
    loses_promises = True

    def arm(self) -> None:
        for proxy in self.testbed.redlock[3:]:
            self.healing.callback(proxy.pass_on)
            proxy.refuse()

    def fire(self) -> None:
        self.before = self._run_ids()
        self.held = self.count_held()
        for server in self._servers():
            self.testbed.restart_empty(server)
        self.heal()

    def prove(self) -> str:
        same = self.before & self._run_ids()
        self.require(not same, "Redis, or Redlock's third server, did not restart")
        self.require_no_lock()
        return f"new run_ids, and no key of the {self.held} locks held before"

    def _servers(self) -> list[embedded.Valkey]:
        """The main Redis, and Redlock's third server: a small testbed has none."""
        return [self.testbed.main, *self.testbed.valkeys[3:4]]

    def _run_ids(self) -> set[str]:
        return {measure.run_id(server, 5.0) for server in self._servers()}


class RedisDown(Fault):
    """SIGKILL of Valkey; later it starts empty. Meanwhile no strategy that needs it may sell."""

    name = "redis-down"
    title = "Redis is down, later back and empty"
    stop = ""
    loses_promises = True

    def fire(self) -> None:
        self.healing.callback(self.testbed.restart_empty, self.testbed.main)
        self.testbed.main.stop(signal.SIGKILL)

    def prove(self) -> str:
        self.require(self.lasts(), "Redis answers")
        return "Redis answers nothing, before the buyers ask and after"

    def lasts(self) -> bool:
        return not measure.run_id(self.testbed.main)

    def act(self, trial: Trial) -> None:
        wanted = "sold" if trial.strategy["backend"] == "postgresql" else "unavailable"
        for number in (1, 2, 3):
            self.must_be_answered(trial, f"rival-{number}", wanted)


class Eviction(LostLock):
    """maxmemory with volatile-lru evicts keys with a ttl, and most locks are such keys. A lock
    without a ttl (`setnx`, `setnx-timestamp`) stays; under allkeys-lru it would go too."""

    name = "eviction"
    title = "maxmemory with volatile-lru: the lock's key goes"

    def fire(self) -> None:
        self.note()
        self.healing.callback(self.ask, "DEL", FILLER)
        off = "CONFIG SET maxmemory 0 maxmemory-policy noeviction"
        self.healing.callback(self.ask, *off.split())
        self.ask("CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "volatile-lru")
        self.error("SET", FILLER, "x" * 65536)  # out of memory: everything that may be evicted is
        self.ask("CONFIG", "SET", "maxmemory", "0")

    def note(self) -> None:
        """Note which locks may be evicted, and how many keys have been."""
        self.count_held()
        self.with_ttl = {
            trial.lock
            for trial in self.trials
            if any(self.ask("PTTL", key) > 0 for key in trial.orphans())
        }
        self.before = self.evicted()

    def prove(self) -> str:
        evicted = self.evicted() - self.before
        left = {trial.lock for trial in self.trials if trial.orphans()}
        locked = [trial for trial in self.trials if not trial.strategy["reserves"]]
        self.require(evicted and (self.with_ttl or not locked), "nothing was evicted")
        self.require(not left & self.with_ttl, f"locks with a ttl are left: {left & self.with_ttl}")
        stayed = ", ".join(sorted(left)) or "none"
        return f"evicted_keys +{evicted}; locks without a ttl stayed: {stayed}"

    def evicted(self) -> int:
        """How many keys Redis has evicted since it started."""
        return int(self.ask("INFO", "stats")["evicted_keys"])


class Failover(LostLock):
    """Replication is a black hole when the victim takes its lock. Then the master is killed, the
    replica promoted by a command, and everybody sent to it.

    Without the black hole nothing would be lost: on loopback the replica has the bytes at once.
    """

    name = "failover"
    title = "the replica is promoted without the lock"
    loses_promises = True

    def arm(self) -> None:
        self._replicate()
        self.proxy.black_hole()

    def _replicate(self) -> None:
        """Start a replica that has caught up through a proxy."""
        master = self.testbed.address(self.testbed.main)
        self.proxy = self.opened.enter_context(Proxy(master))
        host, port = self.proxy.address.split(":")
        self.replica = embedded.Valkey(self.testbed.folder, replica_of=(host, int(port)))
        embedded.adopt(self.replica.start())
        self.testbed.valkeys.append(self.replica)

        def follows() -> bool:
            found = measure.ask(self.replica, "INFO", "replication")
            return str(found.get("master_link_status")) == "up"  # once it has synchronized

        self.require_soon(follows, "the replica does not catch up")

    def fire(self) -> None:
        self.held = self.count_held()
        self.testbed.main.stop(signal.SIGKILL)
        self.replica.promote()
        for proxy in self.testbed.redis:
            proxy.switch(self.testbed.address(self.replica))
        self.testbed.replace_main(self.replica)

    def prove(self) -> str:
        role = self.ask("INFO", "replication")["role"]
        self.require(role == "master", f"the replica is still a {role}")
        self.require_no_lock()
        self._is_used()
        return f"the replica is master and has none of the {self.held} locks held before"

    def _is_used(self) -> None:
        """Require that both nodes reach the new master."""
        mine = measure.run_id(self.testbed.main, 5.0)
        for proxy in self.testbed.redis:
            self.require(measure.run_id(proxy) == mine, "a node was not sent to the new master")


class FailoverSentinel(Failover):
    """The same with three real Sentinels: they find the master dead and promote its replica, and
    the shop asks them for the master. Sentinels and replica reach the master through a proxy that
    drops replication only."""

    name = "failover@sentinel"
    title = "three Sentinels promote the replica without the lock"
    grace = 1.0

    def arm(self) -> None:
        testbed = self.testbed
        for node in (VICTIMS, RIVALS):  # when the sales are over: until then it asks the Sentinels
            self.opened.callback(testbed.restart, node)
        self._replicate()
        sentinels = Sentinels(testbed.folder / "sentinels", self.proxy.port, testbed.log)
        self.sentinels = sentinels
        self.opened.callback(sentinels.stop)
        for pid in sentinels.start():
            embedded.adopt(pid)
        sentinels.wait_until_ready()
        for node in (VICTIMS, RIVALS):
            testbed.restart(node, REDIS_SENTINELS=sentinels.urls, REDIS_SENTINEL_MASTER=MASTER)
        self.proxy.black_hole_replication()

    def fire(self) -> None:
        self.held = self.count_held()
        self.testbed.main.stop(signal.SIGKILL)
        self.proxy.refuse()
        replica = self.testbed.address(self.replica)
        nobody = "the Sentinels promote nobody"
        self.require_soon(lambda: self.sentinels.master() == replica, nobody, 20.0)
        self.testbed.replace_main(self.replica)
        for proxy in self.testbed.redis:
            self.opened.callback(proxy.switch, replica)

    def _is_used(self) -> None:
        """Both nodes say that they reach their Redis, and the old master is dead."""
        for number, node in enumerate(self.testbed.nodes):
            node.wait_until_ready(self.testbed.shop(number))


class SplitBrain(Failover):
    """Replication is a black hole when the victim takes its lock. Then the replica is promoted, and
    node B uses it. Node A keeps the old master, which renews and releases as before: no holder
    can notice."""

    name = "split-brain"
    title = "two masters: the replica is promoted, and only node B follows"
    two_servers = True

    def fire(self) -> None:
        self.held = self.count_held()
        self.old = self.testbed.main
        self.opened.callback(self.old.stop, signal.SIGKILL)  # SIGTERM would wait for its replica
        self.replica.promote()
        replica = self.testbed.address(self.replica)
        self.testbed.redis[RIVALS].switch(replica)
        # When its victims have released on the old master.
        self.healing.callback(self.testbed.redis[VICTIMS].switch, replica)
        self.testbed.replace_main(self.replica)

    def prove(self) -> str:
        for node, server in ((VICTIMS, self.old), (RIVALS, self.testbed.main)):
            found = measure.ask(server, "INFO")
            reached = measure.run_id(self.testbed.redis[node])
            self.require(reached == found["run_id"], "a node does not have the Redis of its own")
            self.require(found["role"] == "master", f"a node has a {found['role']}")
        self.require_no_lock()
        return (
            "node A and node B have a Redis each, both with the role of master; that of node B has "
            f"none of the {self.held} locks held before"
        )
