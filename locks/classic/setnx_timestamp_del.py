"""FLAW: two that find the lock expired both get it.

A4's example of how not to take over from a dead holder: DEL, then SETNX.

    time 0.0   A dies with the lock, which ends at 3.0
    time 3.1   B and C both read 3.0 and find it past
    time 3.2   B sends DEL and SETNX, and has the lock
    time 3.3   C sends DEL, which deletes B's lock, and SETNX, and has the lock too

Two contenders held at the point setnx-timestamp:before_takeover show it. setnx_timestamp.py
differs in the take-over alone: GETSET lets only the first of them win.
"""

from __future__ import annotations

from typing import Any

from .setnx_timestamp import SetnxTimestampLock


class SetnxTimestampDelLock(SetnxTimestampLock):
    """SETNX of the time at which it ends; DEL and SETNX when that has passed; DEL."""

    def take_over(self, current: Any, expires: int) -> bool:
        self.client.delete(self.key)
        return bool(self.client.setnx(self.key, expires))
