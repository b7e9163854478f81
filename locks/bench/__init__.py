"""RedisLock beside its peers, in one run: `python -m locks.bench`."""

from __future__ import annotations
