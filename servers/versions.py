"""The versions of the servers that DATABASE_URL and REDIS_URL lead to."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import redis


def postgres() -> str:
    """The version of the PostgreSQL of DATABASE_URL. Raises psycopg.Error."""
    with psycopg.connect(os.environ["DATABASE_URL"], connect_timeout=5) as connection:
        number = connection.info.server_version
    return f"{number // 10000}.{number % 10000}"


def redis_or_valkey() -> str:
    """The name and version of the Redis or Valkey of REDIS_URL. Raises redis.RedisError."""
    url = os.environ["REDIS_URL"]
    with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
        said: Any = client.info("server")
    name = said.get("server_name", "redis")
    return f"{name} {said.get(f'{name}_version', said['redis_version'])}"
