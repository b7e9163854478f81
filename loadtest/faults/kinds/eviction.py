"""`eviction`: Redis evicts the key of a held lock."""

from loadtest.faults.lost_lock import LostLockFault

FILLER_KEY = "filler"


class EvictionFault(LostLockFault):
    """maxmemory with volatile-lru evicts keys with a ttl, and most locks are such keys. A lock
    without a ttl (`setnx`, `setnx-timestamp`) stays; under allkeys-lru it would go too."""

    name = "eviction"
    title = "maxmemory with volatile-lru: the lock's key goes"

    def fire(self) -> None:
        self.record_state_before()
        self.healing.callback(self.run_redis_command, "DEL", FILLER_KEY)
        off = "CONFIG SET maxmemory 0 maxmemory-policy noeviction"
        self.healing.callback(self.run_redis_command, *off.split())
        self.run_redis_command(
            "CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "volatile-lru"
        )
        self.redis_error(
            "SET", FILLER_KEY, "x" * 65536
        )  # out of memory: everything that may be evicted is
        self.run_redis_command("CONFIG", "SET", "maxmemory", "0")

    def record_state_before(self) -> None:
        """Note which locks may be evicted, and how many keys have been."""
        self.count_held_locks()
        self.locks_with_ttl = {
            trial.lock
            for trial in self.trials
            if any(self.run_redis_command("PTTL", key) > 0 for key in trial.lock_keys_on_server())
        }
        self.evicted_before = self.count_evicted_keys()

    def prove(self) -> str:
        evicted = self.count_evicted_keys() - self.evicted_before
        left = {trial.lock for trial in self.trials if trial.lock_keys_on_server()}
        locked = [trial for trial in self.trials if not trial.strategy["reserves"]]
        self.require(evicted and (self.locks_with_ttl or not locked), "nothing was evicted")
        self.require(
            not left & self.locks_with_ttl,
            f"locks with a ttl are left: {left & self.locks_with_ttl}",
        )
        stayed = ", ".join(sorted(left)) or "none"
        return f"evicted_keys +{evicted}; locks without a ttl stayed: {stayed}"

    def count_evicted_keys(self) -> int:
        """Return how many keys Redis has evicted since it started."""
        return int(self.run_redis_command("INFO", "stats")["evicted_keys"])
