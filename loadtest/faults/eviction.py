"""eviction: Redis is short of memory and drops the lock's key."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import redis

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Stage
from loadtest.faults.trial import Scene, still_held

FILLER = "filler"


class Eviction(Fault):
    """maxmemory with volatile-lru: keys with a ttl may go, and locks are keys with a ttl. One
    without (`setnx`, `setnx-timestamp`) stays; under allkeys-lru it would go too."""

    name = "eviction"
    title = "maxmemory with volatile-lru: the lock's key goes"
    grace = 0.8
    ttl = 5.0
    takes_the_lock = True

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        still_held(scenes)
        self.held = {scene.lock: scene.orphans() for scene in scenes}
        self.mortal = {
            lock
            for lock, keys in self.held.items()
            if any(stage.ask(stage.main, "PTTL", key) > 0 for key in keys)
        }
        self.before = self._evicted(stage)
        stage.ask(stage.main, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        stage.ask(stage.main, "CONFIG", "SET", "maxmemory", "1mb")
        with suppress(redis.ResponseError):  # OOM: what may go is gone
            stage.ask(stage.main, "SET", FILLER, "x" * 65536)
        stage.ask(stage.main, "CONFIG", "SET", "maxmemory", "0")

    def prove(self, stage: Stage, scenes: Sequence[Scene]) -> str:
        evicted = self._evicted(stage) - self.before
        left = {scene.lock for scene in scenes if scene.orphans()}
        self.require(evicted and self.mortal, "nothing was evicted")
        self.require(not left & self.mortal, f"locks with a ttl are left: {left & self.mortal}")
        stayed = ", ".join(sorted(left)) or "none"
        return f"evicted_keys +{evicted}; locks without a ttl stayed: {stayed}"

    def heal(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        stage.ask(stage.main, "CONFIG", "SET", "maxmemory", "0")
        stage.ask(stage.main, "CONFIG", "SET", "maxmemory-policy", "noeviction")
        stage.ask(stage.main, "DEL", FILLER)

    @staticmethod
    def _evicted(stage: Stage) -> int:
        return int(stage.ask(stage.main, "INFO", "stats")["evicted_keys"])
