"""Settings of the shop, read from the environment. .env.example lists the variables.

This module starts no server, because every worker imports it. manage.py, pytest and the load test
start servers first, and put their URLs into DATABASE_URL and REDIS_URL (servers.embedded). Without
DATABASE_URL nothing can be sold, and `manage.py check` says what is missing.
"""

from pathlib import Path
from typing import Any

import environ
from django.core.management.utils import get_random_secret_key
from redis.backoff import NoBackoff
from redis.retry import Retry

from shop.ops.database import make_database_settings
from shop.ops.environment import (
    Env,
    add_login,
    increase_database_number,
    make_sentinel_cache,
    parse_buy_rate_limit,
    parse_sentinels,
)
from shop.ops.logs import make_logging_config
from shop.ops.postgres import TIMEOUTS_MS

BASE_DIR = Path(__file__).resolve().parent.parent

#: Any variable may be read from a file: SECRET_KEY_FILE names the file that contains SECRET_KEY.
env = Env()
environ.Env.read_env(BASE_DIR / ".env")

#: Settings that production needs and that are not set; `check --deploy` reports them. A URL of a
#: server that manage.py started (servers.embedded) counts as not set.
MISSING_SETTINGS: list[str] = [
    name
    for name in ("SECRET_KEY", "ALLOWED_HOSTS", "DATABASE_URL", "REDIS_URL")
    if not env.str(name, default="") or name in env.list("SHOP_EMBEDDED", default=[])
]

# --- The shop -----------------------------------------------------------------------------------

#: Installs the app `demo`, which lets buyers choose the strategy, pause while they hold its lock,
#: and inject faults. Never set it in production.
SHOP_DEMO: bool = env.bool("SHOP_DEMO", default=False)
#: Demo only: milliseconds to pause at points, which are named places in the code of a purchase
#: (shop/sale/points.py), for example acquired=30,after_read=5.
SHOP_DEMO_PAUSES: dict[str, str] = env.dict("SHOP_DEMO_PAUSES", default={})
#: Demo only: the folder in which each purchase with a key is recorded, and this node's name in it.
SHOP_DEMO_HISTORY: str = env.str("SHOP_DEMO_HISTORY", default="")
SHOP_DEMO_NODE: str = env.str("SHOP_DEMO_NODE", default="")
#: Demo only: strategies from your own files, for example mine=workshop/mine/ex05.py.
SHOP_DEMO_STRATEGIES: dict[str, str] = env.dict("SHOP_DEMO_STRATEGIES", default={})
#: Demo only: seconds for which a buyer on the page waits for the next step. `make serve` sets 600.
SHOP_DEMO_STEP_TIMEOUT: float = env.float("SHOP_DEMO_STEP_TIMEOUT", default=60.0)
#: Demo only: the TOML file with the lessons whose questions the page shows, as at /?lesson=5.
SHOP_DEMO_LESSONS: str = env.str("SHOP_DEMO_LESSONS", default="")
#: Demo only: seconds by which this node's clock is ahead.
SHOP_DEMO_CLOCK_AHEAD: float = env.float("SHOP_DEMO_CLOCK_AHEAD", default=0.0)
#: Demo only: the folder through which the page requests rushes (many buyers at the same moment)
#: from `make serve`.
SHOP_RUSH_FOLDER: str = env.str("SHOP_RUSH_FOLDER", default="")
#: Bearer token for POST /restock and for lists of orders. Empty: both are refused.
SHOP_RESTOCK_TOKEN: str = env.str("SHOP_RESTOCK_TOKEN", default="")
#: The strategy that sells: a sound strategy (shop/sale/strategy.py), or `reserve`. In a demo each
#: request chooses its strategy.
SHOP_LOCK: str = env.str("SHOP_LOCK", default="redis")
#: Seconds that a lock survives a holder that stopped answering.
SHOP_LOCK_TTL: float = env.float("SHOP_LOCK_TTL", default=10.0)
#: Seconds that a lock of the strategy `token` survives a holder that stopped answering. Article A1
#: uses 3 s.
SHOP_TOKEN_TTL: float = env.float("SHOP_TOKEN_TTL", default=3.0)
#: Seconds after which a RedisLock is no longer renewed. A holder that hangs, because its database
#: does not answer, blocks all other buyers for this time plus SHOP_LOCK_TTL. It must be longer than
#: the statement timeout.
SHOP_LOCK_MAX_HOLD: float = env.float("SHOP_LOCK_MAX_HOLD", default=max(10.0, SHOP_LOCK_TTL))
#: Seconds for which a buyer waits for a lock before the answer is `busy`.
SHOP_LOCK_WAIT: float = env.float("SHOP_LOCK_WAIT", default=30.0)
#: Threads of a process (shop/gunicorn_conf.py). On an asgi node, the threads for purchases whose
#: strategy cannot wait in the event loop.
WEB_THREADS: int = env.int("WEB_THREADS", default=100)
#: Threads that are kept free of purchases, for pages and health checks.
SPARE_THREADS = 8
#: Maximum number of purchases under way in a process. Further purchases are answered 429 at once.
#: 0 means no limit, and is the default in a demo and on an asgi node.
_has_default_limit = not SHOP_DEMO and env.str("WEB_SERVER", default="") != "asgi"
SHOP_MAX_PURCHASES: int = env.int(
    "SHOP_MAX_PURCHASES",
    default=max(1, WEB_THREADS - SPARE_THREADS) if _has_default_limit else 0,
)
#: Maximum number of purchases of one product that wait while another purchase runs. 0: no limit.
SHOP_MAX_WAITING: int = env.int("SHOP_MAX_WAITING", default=0)
#: For the strategy `reserve`, under which Redis sells units and their orders are written later:
#: buyers are answered `busy` if this many orders are still to be written, or if one of them has
#: been waiting for longer than this many seconds.
SHOP_MOST_UNSETTLED: int = env.int("SHOP_MOST_UNSETTLED", default=2_000)
SHOP_LONGEST_UNSETTLED: float = env.float("SHOP_LONGEST_UNSETTLED", default=1.5)
#: The largest `hold_ms` that a request may have. It must be shorter than the database's timeouts.
SHOP_LONGEST_HOLD_MS = 5_000

#: Whether the shop is behind a proxy that sets X-Forwarded-For and X-Forwarded-Proto. A buyer's
#: address is then the last one in X-Forwarded-For.
SHOP_BEHIND_PROXY: bool = env.bool("SHOP_BEHIND_PROXY", default=False)
#: (attempts, seconds): the attempts that one address may make in that time. None: no limit.
BUY_RATE_LIMIT: tuple[int, float] | None = parse_buy_rate_limit(
    env.str("BUY_RATE_LIMIT", default="")
)

# --- Django -------------------------------------------------------------------------------------

DEBUG: bool = env.bool("DEBUG", default=False)
#: Without SECRET_KEY, every process generates its own key. That is enough for one process without
#: logins.
SECRET_KEY: str = env.str("SECRET_KEY", default="") or get_random_secret_key()
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])

#: Whether the shop is served over HTTPS only. Health checks are exempt.
HTTPS: bool = env.bool("HTTPS", default=False)
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
#: Trust this header only behind a proxy. Without a proxy, a client can send it itself.
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS and SHOP_BEHIND_PROXY else None
)
SECURE_HSTS_SECONDS: int = env.int("HSTS_SECONDS", default=3600) if HTTPS else 0
SILENCED_SYSTEM_CHECKS = [
    # includeSubDomains and preload bind every other site of the domain: the shop never sends them.
    "security.W005",
    "security.W021",
    # SecurityHeadersMiddleware sets X-Frame-Options, also on answers of middleware before Django's.
    "security.W002",
]

CSRF_FAILURE_VIEW = "shop.views.answer_csrf_failure"
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
    "shop.middleware.ProbeMiddleware",  # before the Host header is checked
    "shop.middleware.CrossSiteMiddleware",
    "shop.middleware.DatabaseErrorMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
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
#: The folder of collectstatic. If it is not set, each file is served from its app's folder.
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
#: Maximum size of a request's body. A purchase has a few hundred bytes.
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 1024

# --- PostgreSQL ---------------------------------------------------------------------------------

#: Maximum number of connections per process; 0: one per thread. PostgreSQL allows 100 by default,
#: which is enough for four workers with 20 connections each.
SHOP_DB_POOL: int = env.int("SHOP_DB_POOL", default=20)
#: Whether DATABASE_URL points to PgBouncer or another pooler.
SHOP_DB_POOLER: bool = env.bool("SHOP_DB_POOLER", default=False)
DB_TIMEOUTS_MS = TIMEOUTS_MS
DATABASES: dict[str, Any] = {"default": {}}  # without DATABASE_URL every query fails
if env.str("DATABASE_URL", default=""):
    DATABASES["default"] = make_database_settings(
        env.str("DATABASE_URL"), pool_size=SHOP_DB_POOL, is_pgbouncer=SHOP_DB_POOLER
    )

# --- Redis --------------------------------------------------------------------------------------

#: User and password for all Redis URLs that have none, including those of REDLOCK_URLS.
REDIS_LOGIN = {
    "user": env.str("REDIS_USER", default=""),
    "password": env.str("REDIS_PASSWORD", default=""),
}
REDIS_URL: str = add_login(env.str("REDIS_URL", default="redis://127.0.0.1:6379/0"), **REDIS_LOGIN)
#: The locks have another Redis database than the cache, because cache.clear() deletes all keys of
#: the cache's database. There is another reason for two URLs: django-redis has one pool per URL, so
#: with one URL the locks would get the cache's timeouts.
REDIS_LOCKS_URL: str = add_login(
    env.str("REDIS_LOCKS_URL", default="") or increase_database_number(REDIS_URL), **REDIS_LOGIN
)
#: Options of the locks' connections. By default redis-py repeats a command whose reply is lost. A
#: repeated SET NX then answers that the lock is taken, although this caller took it.
LOCKS_POOL: dict[str, Any] = {
    "retry": Retry(NoBackoff(), 0),
    "socket_timeout": env.float("SHOP_REDIS_TIMEOUT", default=2.0),
    "socket_connect_timeout": env.float("SHOP_REDIS_TIMEOUT", default=2.0),
    # Two per buyer's thread, because another thread renews the buyer's lock. 50 for other threads.
    "max_connections": 2 * WEB_THREADS + 50,
}
CACHES: dict[str, Any] = {
    "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL},
    "locks": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_LOCKS_URL,
        "OPTIONS": {"CONNECTION_POOL_KWARGS": LOCKS_POOL},
    },
}
#: Addresses of the Sentinels, and their name for the master. If there are Sentinels, the hosts in
#: the Redis URLs are ignored.
REDIS_SENTINELS: list[tuple[str, int]] = parse_sentinels(env.str("REDIS_SENTINELS", default=""))
REDIS_SENTINEL_MASTER: str = env.str("REDIS_SENTINEL_MASTER", default="shop")
if REDIS_SENTINELS:
    CACHES = {
        alias: make_sentinel_cache(
            cache, sentinels=REDIS_SENTINELS, master=REDIS_SENTINEL_MASTER, pool_options=LOCKS_POOL
        )
        for alias, cache in CACHES.items()
    }

#: Five independent servers for the strategy `redlock`, and the servers for `zookeeper`. A strategy
#: whose servers are not set answers `unavailable`.
REDLOCK_URLS: list[str] = [
    add_login(url, **REDIS_LOGIN) for url in env.list("REDLOCK_URLS", default=[])
]
ZOOKEEPER_HOSTS: str = env.str("ZOOKEEPER_HOSTS", default="")

# --- Observability ------------------------------------------------------------------------------

#: Bearer token for GET /metrics. Empty: there are no metrics, and nothing is counted.
METRICS_TOKEN: str = env.str("METRICS_TOKEN", default="")
#: Whether each request is logged. Off in a demo, where 200 buyers come at once.
ACCESS_LOG: bool = env.bool("ACCESS_LOG", default=not SHOP_DEMO)
LOGGING: dict[str, Any] = make_logging_config(
    log_format=env.str("LOG_FORMAT", default="text"),
    level=env.str("LOG_LEVEL", default="WARNING"),
    access=ACCESS_LOG,
)
