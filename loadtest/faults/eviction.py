"""eviction: Redis runs out of memory and evicts the lock's key."""

from __future__ import annotations

from contextlib import suppress

import redis

from loadtest.faults.fault import Fault

FILLER = "filler"


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
        with suppress(redis.ResponseError):  # out of memory: everything that may be evicted is
            self.ask("SET", FILLER, "x" * 65536)
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
