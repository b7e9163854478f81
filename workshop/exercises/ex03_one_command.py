"""Exercise 3. A lock in Redis.

The shop has two servers (nodes) of two processes (workers) each. Goal: a lock in Redis in place of
threading.Lock. try_lock() sends one command, with which Redis decides who has the lock. unlock()
releases the lock; what it returns does not matter yet. self.client is the connection, and each
command of Redis is a method of it: self.client.get(self.key). More: type help redis.
"""

import threading

from workshop.kit import PollingLock, guarded

PROCESS_LOCK = threading.Lock()


class MyLock(PollingLock):
    # TODO: as it is, this is a threading.Lock. The key is self.key.
    def try_lock(self, token: str) -> bool:
        """True if the lock is ours now."""
        return PROCESS_LOCK.acquire(blocking=False)

    def unlock(self, token: str) -> bool:
        PROCESS_LOCK.release()
        return True

    # END


buy = guarded(MyLock)  # keep
