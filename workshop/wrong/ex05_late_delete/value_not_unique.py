# REFUSED value-not-unique
"""Exercise 5. Whose lock is it?"""

from __future__ import annotations

import threading

from workshop.kit import PollingLock, guarded

OURS = (
    'if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0'
)


class MyLock(PollingLock):
    def try_lock(self, token: str) -> bool:
        return bool(
            self.client.set(self.key, threading.current_thread().name, nx=True, px=self.ttl_ms)
        )

    def unlock(self, token: str) -> bool:
        # TODO: as it is, this deletes whatever lock is there.
        return bool(self.client.eval(OURS, 1, self.key, threading.current_thread().name))
        # END


buy = guarded(MyLock)  # keep
