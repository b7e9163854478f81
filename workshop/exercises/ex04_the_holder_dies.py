"""Exercise 4. The holder dies.

A is killed while it holds the lock. Goal: Redis itself ends the lock, by its own clock, self.ttl_ms
milliseconds after it was taken. This time is the ttl of the lock. A may die after any of your
commands. Other buyers must be able to buy again within three times self.ttl_ms.
"""

from workshop.kit import PollingLock, guarded


class MyLock(PollingLock):
    def try_lock(self, token: str) -> bool:
        """True if the lock is ours now. The key is self.key; it should expire after self.ttl_ms."""
        # TODO: let Redis end the lock.
        return bool(self.client.setnx(self.key, token))
        # END

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))


buy = guarded(MyLock)  # keep
