"""eviction: Redis runs out of memory and evicts the lock's key."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import redis

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import Trial, still_held

FILLER = "filler"


class Eviction(Fault):
    """maxmemory with volatile-lru evicts keys with a ttl, and most locks are such keys. A lock
    without a ttl (`setnx`, `setnx-timestamp`) stays; under allkeys-lru it would go too."""

    name = "eviction"
    title = "maxmemory with volatile-lru: the lock's key goes"
    grace = 0.8
    ttl = 5.0
    takes_the_lock = True

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        still_held(trials)
        self.held = {trial.lock: trial.orphans() for trial in trials}
        self.with_ttl = {
            lock
            for lock, keys in self.held.items()
            if any(testbed.ask(testbed.main, "PTTL", key) > 0 for key in keys)
        }
        self.before = self.evicted(testbed)
        testbed.ask(testbed.main, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        testbed.ask(testbed.main, "CONFIG", "SET", "maxmemory", "1mb")
        with suppress(redis.ResponseError):  # out of memory: everything that may be evicted is
            testbed.ask(testbed.main, "SET", FILLER, "x" * 65536)
        testbed.ask(testbed.main, "CONFIG", "SET", "maxmemory", "0")

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        evicted = self.evicted(testbed) - self.before
        left = {trial.lock for trial in trials if trial.orphans()}
        locked = [trial for trial in trials if not trial.strategy["reserves"]]
        self.require(evicted and (self.with_ttl or not locked), "nothing was evicted")
        self.require(not left & self.with_ttl, f"locks with a ttl are left: {left & self.with_ttl}")
        stayed = ", ".join(sorted(left)) or "none"
        return f"evicted_keys +{evicted}; locks without a ttl stayed: {stayed}"

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.ask(testbed.main, "CONFIG", "SET", "maxmemory", "0")
        testbed.ask(testbed.main, "CONFIG", "SET", "maxmemory-policy", "noeviction")
        testbed.ask(testbed.main, "DEL", FILLER)

    @staticmethod
    def evicted(testbed: Testbed) -> int:
        """How many keys Redis has evicted since it started."""
        return int(testbed.ask(testbed.main, "INFO", "stats")["evicted_keys"])
