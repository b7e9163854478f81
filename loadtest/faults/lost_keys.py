"""restart, redis-down, eviction: Redis loses its keys, the locks' among them."""

import signal

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial
from servers import embedded

FILLER = "filler"


class Restart(Fault):
    """SIGKILL of Valkey and a start with an empty memory, on the same port.

    Of Redlock's five servers 4 and 5 are cut off while the victim locks 1, 2 and 3. Then 3 restarts
    empty and 4 and 5 are back: 3, 4 and 5 are a majority for the rival.
    """

    name = "restart"
    title = "Redis restarts empty while a holder is inside"
    loses_promises = True
    grace = 0.8
    ttl = 5.0
    takes_the_lock = True

    def arm(self) -> None:
        for proxy in self.testbed.redlock[3:]:
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

    def heal(self) -> None:
        for proxy in self.testbed.redlock:
            proxy.pass_on()

    def _servers(self) -> list[embedded.Valkey]:
        """The main Redis, and Redlock's third server: a small testbed has none."""
        return [self.testbed.main, *self.testbed.valkeys[3:4]]

    def _run_ids(self) -> set[str]:
        return {measure.run_id(server, 5.0) for server in self._servers()}


class RedisDown(Fault):
    """SIGKILL of Valkey; later it starts empty. Meanwhile no strategy that needs it may sell."""

    name = "redis-down"
    title = "Redis is down, later back and empty"
    loses_promises = True

    def enter(self, trial: Trial) -> None:
        self.require_a_sale(trial)

    def fire(self) -> None:
        self.testbed.main.stop(signal.SIGKILL)

    def prove(self) -> str:
        self.require(not measure.run_id(self.testbed.main), "Redis answers")
        return "Redis answers nothing, before the buyers ask and after"

    def act(self, trial: Trial) -> None:
        wanted = "sold" if trial.strategy["backend"] == "postgresql" else "unavailable"
        for number in (1, 2, 3):
            trial.must_be_answered(f"rival-{number}", wanted)
        if measure.run_id(self.testbed.main):
            trial.miss("Redis was back before the buyers had asked")

    def heal(self) -> None:
        """Kill it first if it runs, or it would be left behind."""
        self.testbed.restart_empty(self.testbed.main)


class Eviction(Fault):
    """maxmemory with volatile-lru evicts keys with a ttl, and most locks are such keys. A lock
    without a ttl (`setnx`, `setnx-timestamp`) stays; under allkeys-lru it would go too."""

    name = "eviction"
    title = "maxmemory with volatile-lru: the lock's key goes"
    grace = 0.8
    ttl = 5.0
    takes_the_lock = True

    def fire(self) -> None:
        self.note()
        self.ask("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        self.ask("CONFIG", "SET", "maxmemory", "1mb")
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

    def heal(self) -> None:
        self.ask("CONFIG", "SET", "maxmemory", "0")
        self.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self.ask("DEL", FILLER)

    def evicted(self) -> int:
        """How many keys Redis has evicted since it started."""
        return int(self.ask("INFO", "stats")["evicted_keys"])
