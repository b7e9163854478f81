"""The locks of the articles, flaws kept. To copy one, copy locks.RedisLock instead."""

from __future__ import annotations
