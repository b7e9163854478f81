"""Exercise 3. A lock that every process sees.

threading.Lock is seen in one process. The shop has two nodes. Goal: try_lock() asks Redis, where
one command decides who has the lock; unlock() gives it back. self.client is the connection, a
command its method: self.client.get(self.key). More: type help redis.
"""

import threading

from workshop.kit import PollingLock, guarded

HERE = threading.Lock()


class MyLock(PollingLock):
    # TODO: as it is, each process has a lock of its own. The key is self.key.
    def try_lock(self, token: str) -> bool:
        """True if the lock is ours now."""
        return HERE.acquire(blocking=False)

    def unlock(self, token: str) -> bool:
        HERE.release()
        return True

    # END


buy = guarded(MyLock)  # keep
