"""The locks' Redis."""

from __future__ import annotations

from functools import cache
from typing import cast

import redis
from django_redis import get_redis_connection


@cache
def locks_client() -> redis.Redis:
    """The raw client of the alias `locks`: no pickling, no retries, one pool per process."""
    return cast(redis.Redis, get_redis_connection("locks"))
