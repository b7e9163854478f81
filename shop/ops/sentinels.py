"""Redis through Sentinels: they know which server is the master, also after a failover."""

import copy
import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.core.exceptions import ImproperlyConfigured
from redis.connection import SSLConnection
from redis.sentinel import SentinelConnectionPool, SentinelConnectionPoolProxy


def parse_sentinels(text: str) -> list[tuple[str, int]]:
    """`a:26379,b:26379` as [("a", 26379), ("b", 26379)]; [] for none. Raises ImproperlyConfigured.

    An IPv6 address is in brackets.
    """
    found = []
    for each in map(str.strip, text.split(",") if text.strip() else ()):
        parts = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", each)
        if parts is None or not 0 < int(parts[3]) < 65536:
            wrong = f"REDIS_SENTINELS names {each!r}: write host:port,host:port,host:port"
            raise ImproperlyConfigured(wrong)
        found.append((parts[1] or parts[2], int(parts[3])))
    return found


def through_sentinels(
    cache: dict[str, Any], *, sentinels: list[tuple[str, int]], master: str, pool: dict[str, Any]
) -> dict[str, Any]:
    """A cache of django-redis that finds its server by asking the Sentinels for `master`.

    Of its URL remain user, password, database number and whether to speak TLS. `pool` is how to
    connect: timeouts and no retries; the Sentinels are asked in the same way.
    """
    return {
        **cache,
        "LOCATION": _named(cache["LOCATION"], master),
        "OPTIONS": {
            "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
            "CONNECTION_POOL_CLASS": "shop.ops.sentinels.MasterPool",
            # The factory takes the name from the URL, where capitals get lost.
            "CONNECTION_POOL_KWARGS": {**pool, "service_name": master},
            "SENTINELS": sentinels,
            "SENTINEL_KWARGS": {name: pool[name] for name in pool if name != "max_connections"},
        },
    }


def _named(url: str, master: str) -> str:
    """The URL with the master's name for its host: two URLs for one server must look it."""
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss"):
        raise ImproperlyConfigured(
            f"REDIS_SENTINELS is set and a Redis URL begins with {parts.scheme}:// where the "
            "Sentinels say the host: write redis:// or rediss://, for password and database alone"
        )
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@{master}" if user else master))


class MasterPool(SentinelConnectionPool):
    """Connections to the master of the moment, each of which asks the Sentinels for it anew."""

    def __init__(self, service_name: str, sentinel_manager: Any, **kwargs: Any) -> None:
        if kwargs.get("connection_class") is SSLConnection:  # what rediss:// asks for
            del kwargs["connection_class"]
            kwargs["ssl"] = True
        super().__init__(service_name, sentinel_manager, **kwargs)  # type: ignore[no-untyped-call]
        self.proxy = self.connection_kwargs["connection_pool"] = _Discovery(  # type: ignore[no-untyped-call]
            self, self.is_master, self.check_connection, service_name, sentinel_manager
        )


class _Discovery(SentinelConnectionPoolProxy):
    """Asks on a list of Sentinels of its own.

    redis-py moves the one that answered to the front of the list that all threads share. Two that
    do so at once put one in twice and lose another, until a process knows a single Sentinel.
    """

    def get_master_address(self) -> Any:
        asked = copy.copy(self.sentinel_manager)
        asked.sentinels = list(asked.sentinels)
        address = asked.discover_master(self.service_name)
        self.sentinel_manager.sentinels = asked.sentinels
        if self.master_address != address:
            self.master_address = address
            pool = self.connection_pool_ref()
            if pool is not None:
                pool.disconnect(inuse_connections=False)  # idle ones lead to the old master
        return address
