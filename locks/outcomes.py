"""How a lease can end."""

from __future__ import annotations

from enum import StrEnum


class Release(StrEnum):
    """What a release found."""

    RELEASED = "released"  # the lock was ours, and is free now
    EXPIRED = "expired"  # the lock was no longer ours; nothing was touched
    UNKNOWN = "unknown"  # the server did not answer; the lock is free at the latest after its ttl
    HANDED_OVER = "handed over"  # not released: another process may adopt the lease


class LossReason(StrEnum):
    """How a lease was lost."""

    GONE = "gone"  # the server has no such lock any more: deleted, evicted, restarted empty
    TAKEN = "taken"  # the server says that somebody else holds the lock
    EXPIRED = "expired"  # the deadline passed: the server was not reached, or we were paused
    MAX_HOLD = "max_hold"  # held for longer than allowed, and not renewed any more
