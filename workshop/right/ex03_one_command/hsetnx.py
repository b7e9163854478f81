"""Exercise 3. A lock that every process sees.

threading.Lock is seen in one process. The shop has two nodes. Goal: try_lock() asks Redis, where
one command decides who has the lock; unlock() gives it back.
"""

from __future__ import annotations

import threading

from workshop.kit import PollingLock, guarded

HERE = threading.Lock()


class MyLock(PollingLock):
    # TODO: as it is, each process has a lock of its own. The key is self.key.
    def try_lock(self, token: str) -> bool:
        """True if the lock is ours now."""
        return self.client.hsetnx(self.key, "owner", token) == 1

    def unlock(self, token: str) -> bool:
        return bool(self.client.delete(self.key))

    # END


buy = guarded(MyLock)  # keep
