"""`eviction`: Redis evicts the key of a held lock.

Node A serves the victims, node B their rivals; fault.py explains these words and the steps.
"""

from loadtest.faults.lost_lock import LostLockFault

FILLER_KEY = "filler"


class EvictionFault(LostLockFault):
    """Redis reaches maxmemory, and its policy volatile-lru evicts keys with a ttl.

    Most locks are keys with a ttl. A lock without a ttl (`setnx`, `setnx-timestamp`) stays; under
    allkeys-lru Redis would evict it too.
    """

    name = "eviction"
    title = "maxmemory with volatile-lru: the lock's key goes"

    def fire(self) -> None:
        """Lower maxmemory, force Redis to evict keys by a large write, and lift the limit again."""
        self.record_state_before()
        self.healing.callback(self.run_redis_command, "DEL", FILLER_KEY)
        reset_command = "CONFIG SET maxmemory 0 maxmemory-policy noeviction"
        self.healing.callback(self.run_redis_command, *reset_command.split())
        self.run_redis_command(
            "CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "volatile-lru"
        )
        # This write takes Redis over maxmemory, so Redis evicts every key that it may evict.
        self.try_redis_command("SET", FILLER_KEY, "x" * 65536)
        self.run_redis_command("CONFIG", "SET", "maxmemory", "0")

    def record_state_before(self) -> None:
        """Record which locks are held, which of them have a ttl, and the count of evicted keys.

        Redis may evict only locks with a ttl.
        """
        self.record_held_locks()
        self.strategies_with_ttl = {
            trial.strategy_name
            for trial in self.trials
            if any(self.run_redis_command("PTTL", key) > 0 for key in trial.find_lock_keys())
        }
        self.evicted_before = self.count_evicted_keys()

    def prove(self) -> str:
        evicted_count = self.count_evicted_keys() - self.evicted_before
        strategies_with_lock = {
            trial.strategy_name for trial in self.trials if trial.find_lock_keys()
        }
        self.require(evicted_count, "nothing was evicted")
        # A strategy that reserves a unit holds no lock, and chaos makes this fault without trials:
        # then there need not be a lock to evict.
        should_have_locks = any(not trial.strategy["reserves"] for trial in self.trials)
        if should_have_locks:
            self.require(self.strategies_with_ttl, "there was no lock to evict")
        survivors = sorted(strategies_with_lock & self.strategies_with_ttl)
        self.require(not survivors, f"these locks should have been evicted: {', '.join(survivors)}")
        remaining_locks = ", ".join(sorted(strategies_with_lock)) or "none"
        return f"evicted_keys +{evicted_count}; locks without a ttl stayed: {remaining_locks}"

    def count_evicted_keys(self) -> int:
        """Return the number of keys that Redis has evicted since its start."""
        return int(self.run_redis_command("INFO", "stats")["evicted_keys"])
