"""What the settings make of the environment: rates, Redis URLs, Sentinels. Needs no settings."""

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from django.core.exceptions import ImproperlyConfigured


def parse_rate(text: str) -> tuple[int, float] | None:
    """`3/10s` as (3, 10.0); None for an empty text. Raises ImproperlyConfigured."""
    if not text:
        return None
    parts = re.fullmatch(r"([1-9][0-9]*)/([0-9]+(?:\.[0-9]+)?)s", text)
    if parts is None or not 0.001 <= float(parts[2]) <= 86_400:
        raise ImproperlyConfigured(f"BUY_RATE_LIMIT is {text!r}: write attempts/seconds, as 3/10s")
    return int(parts[1]), float(parts[2])


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
            "CONNECTION_POOL_CLASS": "shop.ops.redis.MasterPool",
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
