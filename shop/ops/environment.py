"""What the settings make of the environment: rates, Redis URLs, names that were left out."""

import re
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
