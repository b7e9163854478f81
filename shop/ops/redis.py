"""The locks' Redis: a client for threads, and one for event loops; and what the settings make of
its URLs, and of Sentinels, which know which server is the master, also after a failover.
"""

import copy
import re
from functools import cache
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import redis
import redis.asyncio
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django_redis import get_redis_connection
from redis.asyncio.connection import parse_url
from redis.asyncio.sentinel import Sentinel
from redis.connection import SSLConnection
from redis.sentinel import SentinelConnectionPool


@cache
def locks_client() -> redis.Redis:
    """The raw client of the alias `locks`: no pickling, no retries, one pool per process."""
    return cast(redis.Redis, get_redis_connection("locks"))


@cache
def async_locks_client() -> redis.asyncio.Redis:
    """The same for event loops: where AsyncRedisLock finds its server."""
    pool = settings.LOCKS_POOL
    timeouts = {name: pool[name] for name in ("socket_timeout", "socket_connect_timeout")}
    if not settings.REDIS_SENTINELS:
        return redis.asyncio.Redis.from_url(settings.REDIS_LOCKS_URL, **timeouts)
    url: dict[str, Any] = dict(parse_url(settings.REDIS_LOCKS_URL))
    url = {name: url[name] for name in ("username", "password", "db") if name in url}
    url["ssl"] = settings.REDIS_LOCKS_URL.startswith("rediss:")
    sentinel = Sentinel(settings.REDIS_SENTINELS, sentinel_kwargs=timeouts, **url, **timeouts)  # type: ignore[no-untyped-call]
    return cast(redis.asyncio.Redis, sentinel.master_for(settings.REDIS_SENTINEL_MASTER))


# --- for the settings ----------------------------------------------------------------------------


def next_database(url: str) -> str:
    """`url` with its database number one higher: redis://host/0 becomes redis://host/1.

    A Unix socket's number is a parameter, unix:///run/redis.sock?db=0, and any URL's may be.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "unix" or "db" in query:
        query["db"] = str(int(query.get("db", 0)) + 1)
        return f"{url.partition('?')[0]}?{urlencode(query)}"
    number = int(parts.path.strip("/") or 0) + 1
    return urlunsplit(parts._replace(path=f"/{number}"))


def with_login(url: str, *, user: str, password: str) -> str:
    """`url` with user and password, unless it has some or there is no password: so that a URL can
    be in a compose file and its password in a file of its own."""
    parts = urlsplit(url)
    if not password or "@" in parts.netloc:
        return url
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))


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
            "CONNECTION_POOL_CLASS": f"{__name__}.MasterPool",
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
        super().__init__(service_name, _Discovery(sentinel_manager), **kwargs)  # type: ignore[no-untyped-call]
        self.sentinel_manager = sentinel_manager


class _Discovery:
    """Asks a Sentinel manager's servers, each time on a list of its own.

    redis-py moves the one that answered to the front of the list that all threads share. Two that
    do so at once put one in twice and lose another, until a process knows a single Sentinel.
    """

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    def discover_master(self, service_name: str) -> Any:
        asked = copy.copy(self.manager)
        asked.sentinels = list(asked.sentinels)
        address = asked.discover_master(service_name)
        self.manager.sentinels = asked.sentinels
        return address
