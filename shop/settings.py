"""Everything from the environment; .env.example lists the names.

No server is started from here: workers import this file. manage.py, pytest and the load test
set DATABASE_URL and REDIS_URL first (shop.embedded); without them the shop says so and sells
nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from django.core.management.utils import get_random_secret_key
from redis.backoff import NoBackoff
from redis.retry import Retry

from shop.sentinels import parse_sentinels, through_sentinels

BASE_DIR = Path(__file__).resolve().parent.parent


def parse_rate(text: str) -> tuple[int, float] | None:
    """`3/10s` as (3, 10.0); None for an empty text. Raises ImproperlyConfigured."""
    if not text:
        return None
    parts = re.fullmatch(r"([1-9][0-9]*)/([0-9]+(?:\.[0-9]+)?)s", text)
    if parts is None or not 0.001 <= float(parts[2]) <= 86_400:
        raise ImproperlyConfigured(f"BUY_RATE_LIMIT is {text!r}: write attempts/seconds, as 3/10s")
    return int(parts[1]), float(parts[2])


#: SECRET_KEY_FILE names a file that holds SECRET_KEY; the same for every other name.
env = environ.FileAwareEnv()
environ.Env.read_env(BASE_DIR / ".env")

# --- The shop -----------------------------------------------------------------------------------

#: Allows hold_ms and everything that injects a fault. Never in production.
SHOP_DEMO: bool = env.bool("SHOP_DEMO", default=False)
#: For a demo: milliseconds to pause at named points, as in released=30,after_read=5.
SHOP_DEMO_PAUSES: dict[str, str] = env.dict("SHOP_DEMO_PAUSES", default={})
#: For a demo: the folder into which every purchase with a key is recorded (shop/demo.py), and what
#: this node is called there.
SHOP_DEMO_HISTORY: str = env.str("SHOP_DEMO_HISTORY", default="")
SHOP_DEMO_NODE: str = env.str("SHOP_DEMO_NODE", default="")
#: For a demo: seconds by which this node's clock is ahead.
SHOP_DEMO_CLOCK_AHEAD: float = env.float("SHOP_DEMO_CLOCK_AHEAD", default=0.0)
#: For a demo: where Locust's web UI listens; the page starts its rushes there (make serve sets it).
LOCUST_URL: str = env.str("LOCUST_URL", default="").rstrip("/")
#: Bearer token of POST /restock and of every order's buyer and key; empty closes both.
SHOP_RESTOCK_TOKEN: str = env.str("SHOP_RESTOCK_TOKEN", default="")
#: The strategy that sells where SHOP_DEMO is off; a sound one. In a demo each buyer names one.
SHOP_LOCK: str = env.str("SHOP_LOCK", default="redis")
#: Seconds that a lock survives a holder that stopped answering.
SHOP_LOCK_TTL: float = env.float("SHOP_LOCK_TTL", default=10.0)
#: The same for the strategy `token`: A1's own 3 s.
SHOP_TOKEN_TTL: float = env.float("SHOP_TOKEN_TTL", default=3.0)
#: Seconds that a buyer queues for a lock before the answer is `busy`.
SHOP_LOCK_WAIT: float = env.float("SHOP_LOCK_WAIT", default=30.0)
#: Longest hold that a demo may ask for, milliseconds. Shorter than the database's patience.
SHOP_LONGEST_HOLD_MS = 5_000

#: The shop's own Lua scripts.
SHOP_LUA = Path(__file__).resolve().parent / "lua"
#: Behind a proxy that sets it, a buyer's address is the last one in X-Forwarded-For.
SHOP_BEHIND_PROXY: bool = env.bool("SHOP_BEHIND_PROXY", default=False)
#: At most (attempts, in seconds) per address; None lets everybody in.
BUY_RATE_LIMIT: tuple[int, float] | None = parse_rate(env.str("BUY_RATE_LIMIT", default=""))

# --- Django -------------------------------------------------------------------------------------

DEBUG: bool = env.bool("DEBUG", default=False)
#: Unset, every process makes up its own: good enough for one, not for several workers with logins.
SECRET_KEY: str = env.str("SECRET_KEY", default="") or get_random_secret_key()
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])

#: True where the shop is served over HTTPS alone.
HTTPS: bool = env.bool("HTTPS", default=False)
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = 3600 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None

CSRF_FAILURE_VIEW = "shop.views.without_csrf_token"
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "shop.apps.ShopConfig",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
if SHOP_DEMO and SHOP_DEMO_HISTORY:
    MIDDLEWARE.append("shop.demo.VisitMiddleware")
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
STATIC_URL = "static/"
#: Where collectstatic puts the files; unset, they are served from where they are.
STATIC_ROOT: str | None = env.str("STATIC_ROOT", default="") or None
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
#: A purchase is a few hundred bytes; more is refused before it is read.
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024

# --- PostgreSQL ---------------------------------------------------------------------------------

#: Connections per process; 0 for one per thread. Four workers of 20 fit a server of 100.
SHOP_DB_POOL: int = env.int("SHOP_DB_POOL", default=20)
#: Milliseconds, in the order that keeps a stuck buyer from outliving its lock:
#: idle in transaction < lock < statement < ttl < the client's timeout < gunicorn's.
DB_TIMEOUTS_MS = {
    "idle_in_transaction_session_timeout": 6_000,
    "lock_timeout": 7_000,
    "statement_timeout": 8_000,
}
DATABASES: dict[str, Any] = {"default": {}}  # DATABASE_URL is unset: any query says so
if env.str("DATABASE_URL", default=""):
    DATABASES["default"] = env.db_url("DATABASE_URL")
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        options=" ".join(f"-c {name}={value}" for name, value in DB_TIMEOUTS_MS.items()),
        connect_timeout=3,
    )
    if SHOP_DB_POOL:
        DATABASES["default"]["OPTIONS"]["pool"] = {
            "min_size": SHOP_DB_POOL,
            "max_size": SHOP_DB_POOL,
            "timeout": 6,
            "reconnect_timeout": 5,  # its pauses double: longer, and it sleeps through the recovery
        }

# --- Redis --------------------------------------------------------------------------------------


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


REDIS_URL: str = env.str("REDIS_URL", default="redis://127.0.0.1:6379/0")
#: Connections to a Redis per process: at least one per thread.
SHOP_REDIS_POOL: int = env.int("SHOP_REDIS_POOL", default=250)
#: The locks live in a database of their own: cache.clear() is FLUSHDB. And django-redis keys its
#: pools by URL, so that two aliases with one URL would share the first one's timeouts.
REDIS_LOCKS_URL: str = env.str("REDIS_LOCKS_URL", default="") or next_database(REDIS_URL)
#: How the locks connect. redis-py retries ten times by default; a lost reply then makes SET NX lie.
LOCKS_POOL: dict[str, Any] = {
    "retry": Retry(NoBackoff(), 0),
    "socket_timeout": env.float("SHOP_REDIS_TIMEOUT", default=2.0),
    "socket_connect_timeout": env.float("SHOP_REDIS_TIMEOUT", default=2.0),
    "max_connections": SHOP_REDIS_POOL,
}
CACHES: dict[str, Any] = {
    "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL},
    "locks": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_LOCKS_URL,
        "OPTIONS": {"CONNECTION_POOL_KWARGS": LOCKS_POOL},
    },
}
#: Who knows the master, where there are Sentinels: then the hosts in the URLs are not used.
REDIS_SENTINELS: list[tuple[str, int]] = parse_sentinels(env.str("REDIS_SENTINELS", default=""))
#: What they call it.
REDIS_SENTINEL_MASTER: str = env.str("REDIS_SENTINEL_MASTER", default="shop")
if REDIS_SENTINELS:
    CACHES = {
        alias: through_sentinels(
            cache, sentinels=REDIS_SENTINELS, master=REDIS_SENTINEL_MASTER, pool=LOCKS_POOL
        )
        for alias, cache in CACHES.items()
    }

#: Five independent servers for the strategy `redlock`, and ZooKeeper for the one of its name;
#: unset, they answer `unavailable`.
REDLOCK_URLS: list[str] = env.list("REDLOCK_URLS", default=[])
ZOOKEEPER_HOSTS: str = env.str("ZOOKEEPER_HOSTS", default="")

# --- Logging ------------------------------------------------------------------------------------

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", default="WARNING")},
}
