"""Base class of the faults in which Redis loses a held lock.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from loadtest.faults.fault import Fault


class LostLockFault(Fault):
    """Redis loses a lock while its holder is buying, long before the ttl is over.

    held_lock_count  number of the victims' locks that Redis had before the fault
    """

    rival_timeout_seconds = 0.8  # less than a ttl: a rival gets the lost lock at once
    ttl = 5.0
    takes_the_lock = True
    held_lock_count = 0

    def record_held_locks(self) -> None:
        """Set `held_lock_count` to the number of the victims' locks on the main Redis.

        A trial is inconclusive if its strategy uses a lock there, but the victim's lock is missing.
        """
        self.held_lock_count = 0
        for trial in self.trials:
            # A strategy that reserves units in Redis has no lock.
            uses_lock_on_main_redis = (
                trial.strategy["backend"] == "redis" and not trial.strategy["reserves"]
            )
            if trial.find_lock_keys():
                self.held_lock_count += 1
            elif uses_lock_on_main_redis:
                trial.mark_inconclusive("Redis did not have the victim's lock before the fault")

    def require_no_lock_left(self) -> None:
        """Raise NotFired if a victim's lock is still on the main Redis."""
        surviving_locks = [trial.strategy_name for trial in self.trials if trial.find_lock_keys()]
        self.require(not surviving_locks, f"these locks survived: {', '.join(surviving_locks)}")
