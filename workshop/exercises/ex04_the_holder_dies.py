"""Exercise 4. The holder dies.

A is killed while it holds the lock. Its key stays, and nobody else may delete it: nobody ever buys
again. Goal: Redis itself ends the lock, by its own clock, and wherever A dies, others buy again
after at most 3 ttl.
"""

from workshop.kit import PollingLock, guarded


class MyLock(PollingLock):
    def try_lock(self, token: str) -> bool:
        """True if the lock is ours now. The key is self.key, it shall live self.ttl_ms."""
        # TODO: as it is, the key stays where its owner died.
        return bool(self.client.setnx(self.key, token))
        # END

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))


buy = guarded(MyLock)  # keep
