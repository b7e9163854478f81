"""Parsing of the environment for the settings: secret files, rates, Redis URLs, Sentinels."""

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from environ.fileaware_mapping import FileAwareMapping


class EnvironmentWithFiles(FileAwareMapping):  # type: ignore[misc]
    """The environment, in which NAME_FILE may name a file with the value of NAME.

    One line break at the end of the file is not part of the value, because editors and `echo` add
    it.
    """

    def __getitem__(self, name: str) -> str:
        """Return the value of a variable, without the line break at the end of a file."""
        value: str = super().__getitem__(name)
        if self.env.get(f"{name}_FILE"):
            value = value.removesuffix("\n")  # a file's \r\n has been read as \n, too
        return value


class Env(environ.Env):  # type: ignore[misc]
    """Parses the values of EnvironmentWithFiles."""

    ENVIRON = EnvironmentWithFiles()


def parse_buy_rate_limit(text: str) -> tuple[int, float] | None:
    """Return BUY_RATE_LIMIT as (attempts, seconds): `3/10s` as (3, 10.0), an empty text as None.

    Raises ImproperlyConfigured.
    """
    if not text:
        return None
    match = re.fullmatch(r"(?P<attempts>[1-9][0-9]*)/(?P<seconds>[0-9]+(?:\.[0-9]+)?)s", text)
    if match is None or not 0.001 <= float(match["seconds"]) <= 86_400:
        raise ImproperlyConfigured(
            f"BUY_RATE_LIMIT is {text!r}: write attempts/seconds, as 3/10s, with 0.001 to 86400 s"
        )
    return int(match["attempts"]), float(match["seconds"])


def increase_database_number(url: str) -> str:
    """Return `url` with its database number increased: redis://host/0 becomes redis://host/1.

    The number may also be the parameter `db`, as in unix:///run/redis.sock?db=0. Raises ValueError
    if the database is not a number.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "unix" or "db" in query:
        query["db"] = str(int(query.get("db", 0)) + 1)
        return f"{url.partition('?')[0]}?{urlencode(query)}"
    number = int(parts.path.strip("/") or 0) + 1
    return urlunsplit(parts._replace(path=f"/{number}"))


def add_login(url: str, *, user: str, password: str) -> str:
    """Return `url` with user and password, unless the URL has a login or the password is empty.

    A compose file can then contain the URL, and a secret file the password.
    """
    parts = urlsplit(url)
    if not password or "@" in parts.netloc:
        return url
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))


def parse_sentinels(text: str) -> list[tuple[str, int]]:
    """Return `a:26379,b:26379` as [("a", 26379), ("b", 26379)], and an empty text as [].

    An IPv6 address is in brackets. Raises ImproperlyConfigured.
    """
    if not text.strip():
        return []
    return [_parse_sentinel(address.strip()) for address in text.split(",")]


def _parse_sentinel(address: str) -> tuple[str, int]:
    """Return the host, without the brackets of an IPv6 address, and the port."""
    match = re.fullmatch(
        r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})", address
    )
    if match is None or not 0 < int(match["port"]) < 65536:
        problem = f"REDIS_SENTINELS contains {address!r}: write host:port,host:port,host:port"
        raise ImproperlyConfigured(problem)
    return match["ipv6"] or match["name"], int(match["port"])


def make_sentinel_cache(
    cache: dict[str, Any],
    *,
    sentinels: list[tuple[str, int]],
    master: str,
    pool_options: dict[str, Any],
) -> dict[str, Any]:
    """Return the settings of a django-redis cache that asks the Sentinels for the master's address.

    cache         settings of a cache, whose URL has the user, password, database number and TLS
    sentinels     the host and the port of each Sentinel
    master        the name of the master
    pool_options  the size of the pool, and the options of its connections (timeouts, no retries).
                  The connections to the Sentinels get the same options

    Raises ImproperlyConfigured if the URL does not begin with redis:// or rediss://.
    """
    sentinel_options = {
        name: pool_options[name] for name in pool_options if name != "max_connections"
    }
    return {
        **cache,
        "LOCATION": _replace_host(cache["LOCATION"], master),
        "OPTIONS": {
            "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
            "CONNECTION_POOL_CLASS": "shop.ops.redis.MasterPool",
            # Without `service_name` the factory would use the host of the URL as the master's name,
            # and urlsplit() makes hosts lower case.
            "CONNECTION_POOL_KWARGS": {**pool_options, "service_name": master},
            "SENTINELS": sentinels,
            "SENTINEL_KWARGS": sentinel_options,
        },
    }


def _replace_host(url: str, master: str) -> str:
    """Return the URL with the master's name as its host. Raises ImproperlyConfigured."""
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss"):
        raise ImproperlyConfigured(
            f"REDIS_SENTINELS is set and a Redis URL begins with {parts.scheme}://: write redis:// "
            "or rediss://. Its host is ignored, because the Sentinels name the host"
        )
    user = parts.netloc.rpartition("@")[0]
    netloc = master
    if user:
        netloc = f"{user}@{master}"
    return urlunsplit(parts._replace(netloc=netloc))
