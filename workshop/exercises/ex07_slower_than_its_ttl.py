"""Exercise 7. Slower than its ttl.

The work may take longer than the ttl. A thread calls renew(token) every PERIOD x ttl seconds (1/3:
three times per ttl). Goal: the lock lives as long as its holder works, even if one renewal is lost,
and no renewal changes the lock of another buyer.
"""

from workshop.kit import RenewedLock, guarded


class MyLock(RenewedLock):
    # TODO: as it is, renew() does nothing. The key is self.key; its ttl is self.ttl_ms.
    PERIOD = 1.0

    def renew(self, token: str) -> bool:
        """True if the lock is still ours."""
        return True

    # END


buy = guarded(MyLock)  # keep
