"""Exercise 7. Slower than its ttl.

The lock ends while its holder works. A thread calls renew(token) every PERIOD ttl. Goal: the lock
lives as long as its holder works, even if one renewal is lost; nobody else's lock is touched.
"""

from __future__ import annotations

from workshop.kit import RenewedLock, guarded


class MyLock(RenewedLock):
    # TODO: as it is, nothing is renewed. The key is self.key, it shall live self.ttl_ms.
    PERIOD = 0.25

    def renew(self, token: str) -> bool:
        """True if the lock is still ours."""
        script = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0"
        return self.client.register_script(script)(keys=[self.key], args=[token, self.ttl_ms]) == 1

    # END


buy = guarded(MyLock)  # keep
