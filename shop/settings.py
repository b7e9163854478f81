"""Everything from the environment; .env.example lists the names.

No server is started from here: workers import this file. manage.py, pytest and the load test
set DATABASE_URL and REDIS_URL first (servers.embedded); without them the shop says so and sells
nothing.
"""

from pathlib import Path
from typing import Any

import environ
from django.core.management.utils import get_random_secret_key
from redis.backoff import NoBackoff
from redis.retry import Retry

from shop.ops.database import database_settings
from shop.ops.environment import (
    add_login,
    next_redis_database,
    parse_rate,
    parse_sentinels,
    sentinel_cache,
)
from shop.ops.logs import logging_config
from shop.ops.postgres import TIMEOUTS_MS

BASE_DIR = Path(__file__).resolve().parent.parent

#: SECRET_KEY_FILE names a file that holds SECRET_KEY; the same for every other name.
env = environ.FileAwareEnv()
environ.Env.read_env(BASE_DIR / ".env")

#: What production must set and was left out; `check --deploy` names it. For the two URLs, manage.py
#: brings its own servers (servers.embedded), which are not production's.
MISSING: list[str] = [
    name
    for name in ("SECRET_KEY", "ALLOWED_HOSTS", "DATABASE_URL", "REDIS_URL")
    if not env.str(name, default="") or name in env.list("SHOP_EMBEDDED", default=[])
]

# --- The shop -----------------------------------------------------------------------------------

#: Allows hold_ms and everything that injects a fault. Never in production.
SHOP_DEMO: bool = env.bool("SHOP_DEMO", default=False)
#: For a demo: milliseconds to pause at named points, as in acquired=30,after_read=5.
SHOP_DEMO_PAUSES: dict[str, str] = env.dict("SHOP_DEMO_PAUSES", default={})
#: For a demo: the folder that each purchase with a key is recorded in, and this node's name there.
SHOP_DEMO_HISTORY: str = env.str("SHOP_DEMO_HISTORY", default="")
SHOP_DEMO_NODE: str = env.str("SHOP_DEMO_NODE", default="")
#: For a demo: strategies from your own files, as in mine=workshop/mine/ex05.py.
SHOP_DEMO_STRATEGIES: dict[str, str] = env.dict("SHOP_DEMO_STRATEGIES", default={})
#: For a demo: seconds that a buyer who is stepped through waits for a step (make serve: 600).
SHOP_DEMO_STEP_TIMEOUT: float = env.float("SHOP_DEMO_STEP_TIMEOUT", default=60.0)
#: For a demo: a TOML file of lessons, whose questions the page shows at /?lesson=5.
SHOP_DEMO_LESSONS: str = env.str("SHOP_DEMO_LESSONS", default="")
#: For a demo: seconds by which this node's clock is ahead.
SHOP_DEMO_CLOCK_AHEAD: float = env.float("SHOP_DEMO_CLOCK_AHEAD", default=0.0)
#: For a demo: the folder where the page asks for rushes, and make serve runs them.
SHOP_RUSH_FOLDER: str = env.str("SHOP_RUSH_FOLDER", default="")
#: Bearer token of POST /restock and of every order's buyer and key; empty closes both.
SHOP_RESTOCK_TOKEN: str = env.str("SHOP_RESTOCK_TOKEN", default="")
#: The strategy that sells where SHOP_DEMO is off; a sound one. In a demo each buyer names one.
SHOP_LOCK: str = env.str("SHOP_LOCK", default="redis")
#: Seconds that a lock survives a holder that stopped answering.
SHOP_LOCK_TTL: float = env.float("SHOP_LOCK_TTL", default=10.0)
#: The same for the strategy `token`: A1's own 3 s.
SHOP_TOKEN_TTL: float = env.float("SHOP_TOKEN_TTL", default=3.0)
#: Seconds after which a living holder of RedisLock is renewed no more: one that hangs in a silent
#: database keeps all buyers out for this and a ttl. Longer than a statement may take.
SHOP_LOCK_MAX_HOLD: float = env.float("SHOP_LOCK_MAX_HOLD", default=max(10.0, SHOP_LOCK_TTL))
#: Seconds that a buyer queues for a lock before the answer is `busy`.
SHOP_LOCK_WAIT: float = env.float("SHOP_LOCK_WAIT", default=30.0)
#: Threads of a process (shop/gunicorn_conf.py); of an asgi node those of its purchases that wait in
#: a thread. Of a process of threads some are kept free of purchases, for pages and health checks.
WEB_THREADS: int = env.int("WEB_THREADS", default=100)
SPARE_THREADS = 8
#: Purchases that may be under way in a process; more are answered 429 at once. 0: no bound.
_waits_in_threads = not SHOP_DEMO and env.str("WEB_SERVER", default="") != "asgi"
SHOP_MAX_PURCHASES: int = env.int(
    "SHOP_MAX_PURCHASES",
    default=max(1, WEB_THREADS - SPARE_THREADS) if _waits_in_threads else 0,
)
#: Of them, those of one product that may wait while one sells. 0: no bound.
SHOP_MAX_WAITING: int = env.int("SHOP_MAX_WAITING", default=0)
#: For the strategy `reserve`: promises that may be unsettled before buyers are answered `busy`, and
#: seconds that the oldest may be.
SHOP_MOST_UNSETTLED: int = env.int("SHOP_MOST_UNSETTLED", default=2_000)
SHOP_LONGEST_UNSETTLED: float = env.float("SHOP_LONGEST_UNSETTLED", default=1.5)
#: Longest hold that a demo may ask for, milliseconds. Shorter than the database's timeouts.
SHOP_LONGEST_HOLD_MS = 5_000

#: Behind a proxy that sets it, a buyer's address is the last one in X-Forwarded-For.
SHOP_BEHIND_PROXY: bool = env.bool("SHOP_BEHIND_PROXY", default=False)
#: At most (attempts, in seconds) per address; None lets everybody in.
BUY_RATE_LIMIT: tuple[int, float] | None = parse_rate(env.str("BUY_RATE_LIMIT", default=""))

# --- Django -------------------------------------------------------------------------------------

DEBUG: bool = env.bool("DEBUG", default=False)
#: Unset, every process makes up its own: good enough for one without logins.
SECRET_KEY: str = env.str("SECRET_KEY", default="") or get_random_secret_key()
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])

#: True where the shop is served only over HTTPS. Health checks are exempt (shop.ops.health).
HTTPS: bool = env.bool("HTTPS", default=False)
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
#: Anybody can send the header to a node that is not behind a proxy.
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS and SHOP_BEHIND_PROXY else None
)
SECURE_HSTS_SECONDS: int = env.int("HSTS_SECONDS", default=3600) if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS: bool = env.bool("HSTS_INCLUDE_SUBDOMAINS", default=False)
SECURE_HSTS_PRELOAD: bool = env.bool("HSTS_PRELOAD", default=False)
#: A 0 in the environment is a decision, and no reason for a warning.
_decided = {"security.W005": "HSTS_INCLUDE_SUBDOMAINS", "security.W021": "HSTS_PRELOAD"}
SILENCED_SYSTEM_CHECKS = [check for check, name in _decided.items() if env.str(name, default="")]

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
if SHOP_DEMO:
    INSTALLED_APPS.append("demo")
MIDDLEWARE = [
    "shop.middleware.SecurityHeadersMiddleware",
    "shop.middleware.ObserveMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "shop.middleware.ProbeMiddleware",  # before the Host header is looked at
    "shop.middleware.CrossSiteMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
if SHOP_DEMO and SHOP_DEMO_HISTORY:
    MIDDLEWARE.append("demo.hooks.TraceMiddleware")
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
TIME_ZONE = "UTC"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
#: A purchase is a few hundred bytes; more is refused before it is read.
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024

# --- PostgreSQL ---------------------------------------------------------------------------------

#: Connections per process; 0 for one per thread. Four workers of 20 fit a server of 100.
SHOP_DB_POOL: int = env.int("SHOP_DB_POOL", default=20)
#: DATABASE_URL leads to PgBouncer or its like.
SHOP_DB_POOLER: bool = env.bool("SHOP_DB_POOLER", default=False)
DB_TIMEOUTS_MS = TIMEOUTS_MS
DATABASES: dict[str, Any] = {"default": {}}  # DATABASE_URL is unset: any query says so
if env.str("DATABASE_URL", default=""):
    DATABASES["default"] = database_settings(
        env.str("DATABASE_URL"), pool_size=SHOP_DB_POOL, is_pgbouncer=SHOP_DB_POOLER
    )

# --- Redis --------------------------------------------------------------------------------------

#: For the Redis URLs without a user and a password, REDLOCK_URLS included.
REDIS_LOGIN = {
    "user": env.str("REDIS_USER", default=""),
    "password": env.str("REDIS_PASSWORD", default=""),
}
REDIS_URL: str = add_login(env.str("REDIS_URL", default="redis://127.0.0.1:6379/0"), **REDIS_LOGIN)
#: Connections to a Redis per process: at least one per thread.
SHOP_REDIS_POOL: int = env.int("SHOP_REDIS_POOL", default=250)
#: The locks live in their own database: cache.clear() is FLUSHDB. And django-redis keys its
#: pools by URL, so that two aliases with one URL would share the first one's timeouts.
REDIS_LOCKS_URL: str = add_login(
    env.str("REDIS_LOCKS_URL", default="") or next_redis_database(REDIS_URL), **REDIS_LOGIN
)
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
#: The Sentinels, if any, and their name for the master: then the URLs' hosts are not used.
REDIS_SENTINELS: list[tuple[str, int]] = parse_sentinels(env.str("REDIS_SENTINELS", default=""))
REDIS_SENTINEL_MASTER: str = env.str("REDIS_SENTINEL_MASTER", default="shop")
if REDIS_SENTINELS:
    CACHES = {
        alias: sentinel_cache(
            cache, sentinels=REDIS_SENTINELS, master=REDIS_SENTINEL_MASTER, pool=LOCKS_POOL
        )
        for alias, cache in CACHES.items()
    }

#: Five independent servers for the strategy `redlock`, and ZooKeeper for the one of its name;
#: unset, they answer `unavailable`.
REDLOCK_URLS: list[str] = [
    add_login(url, **REDIS_LOGIN) for url in env.list("REDLOCK_URLS", default=[])
]
ZOOKEEPER_HOSTS: str = env.str("ZOOKEEPER_HOSTS", default="")

# --- Observability ------------------------------------------------------------------------------

#: Bearer token of GET /metrics; empty closes it and counts nothing.
METRICS_TOKEN: str = env.str("METRICS_TOKEN", default="")
#: One line for each request. Off in a demo: 200 lines for 200 buyers at once.
ACCESS_LOG: bool = env.bool("ACCESS_LOG", default=not SHOP_DEMO)
LOGGING: dict[str, Any] = logging_config(
    kind=env.str("LOG_FORMAT", default="text"),
    level=env.str("LOG_LEVEL", default="WARNING"),
    access=ACCESS_LOG,
)
