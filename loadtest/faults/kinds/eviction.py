"""`eviction`: Redis evicts the key of a held lock.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from loadtest.faults.lost_lock import LostLockFault

#: A key whose value takes Redis over its memory limit.
FILLER_KEY = "filler"


class EvictionFault(LostLockFault):
    """Redis reaches maxmemory, and its policy volatile-lru evicts keys with a ttl.

    Most locks are keys with a ttl. A lock without a ttl (`setnx`, `setnx-timestamp`) is not
    evicted. Under the policy allkeys-lru Redis would evict it, too.
    """

    name = "eviction"
    title = "maxmemory with volatile-lru: the lock's key is evicted"

    def fire(self) -> None:
        """Lower maxmemory, force Redis to evict keys by a large write, and lift the limit again."""
        self.record_locks_and_evictions()
        self.undo_on_heal.callback(self.run_redis_command, "DEL", FILLER_KEY)
        reset_command = "CONFIG SET maxmemory 0 maxmemory-policy noeviction"
        self.undo_on_heal.callback(self.run_redis_command, *reset_command.split())
        self.run_redis_command(
            "CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "volatile-lru"
        )
        # This write takes Redis over maxmemory, so Redis evicts every key that it may evict.
        self.try_redis_command("SET", FILLER_KEY, "x" * 65536)
        self.run_redis_command("CONFIG", "SET", "maxmemory", "0")

    def record_locks_and_evictions(self) -> None:
        """Record which locks are held, which of them have a ttl, and the count of evicted keys."""
        self.record_held_locks()
        self.strategies_with_ttl = {
            trial.strategy_name
            for trial in self.trials
            if any(self.run_redis_command("PTTL", key) > 0 for key in trial.find_lock_keys())
        }
        self.evicted_before = self.count_evicted_keys()

    def prove(self) -> str:
        """Prove that Redis has evicted keys, among them each victim's lock with a ttl."""
        evicted_count = self.count_evicted_keys() - self.evicted_before
        strategies_with_remaining_lock = {
            trial.strategy_name for trial in self.trials if trial.find_lock_keys()
        }
        self.require(evicted_count, "nothing was evicted")
        # Without a lock there is nothing to evict: a strategy that reserves a unit has no lock, and
        # `make chaos` injects this fault without trials.
        should_have_locks = any(not trial.strategy["reserves"] for trial in self.trials)
        if should_have_locks:
            self.require(self.strategies_with_ttl, "there was no lock to evict")
        unevicted_locks = sorted(strategies_with_remaining_lock & self.strategies_with_ttl)
        message = f"these locks should have been evicted: {', '.join(unevicted_locks)}"
        self.require(not unevicted_locks, message)
        remaining_locks = ", ".join(sorted(strategies_with_remaining_lock)) or "none"
        return f"{evicted_count} keys were evicted; locks without a ttl stayed: {remaining_locks}"

    def count_evicted_keys(self) -> int:
        """Return the number of keys that Redis has evicted since its start."""
        return int(self.run_redis_command("INFO", "stats")["evicted_keys"])
