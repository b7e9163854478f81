"""FLAW: a holder slower than the ttl deletes the next holder's lock.

A0's cure for `setnx-expire`: whoever finds the lock taken, but without a ttl, gives it one. A
crash between SETNX and EXPIRE then costs one ttl, counted from the next buyer on.

    time 0.0   A takes the lock for 3 s
    time 3.0   A is still at it; the key expires
    time 3.1   B takes the lock
    time 3.5   A is done and sends DEL: B's lock is gone
    time 3.6   C takes the lock beside B

The fault `late-release` shows it; `crash` no longer does. As printed, A0's lock() forgets to
return the identifier to the winner, who could then never unlock. A0 unlocks by GET, compare, DEL,
which narrows this flaw and does not close it: see token_get_del.py.
"""

from __future__ import annotations

from .setnx_expire import SetnxExpireLock


class SetnxExpireRepairLock(SetnxExpireLock):
    """SETNX, then EXPIRE, which any other contender makes up for; DEL."""

    def try_lock(self, token: str) -> bool:
        if super().try_lock(token):
            return True
        if self.client.pttl(self.key) == -1:  # taken, and without a ttl
            self.client.pexpire(self.key, self.ttl_ms)
        return False
