"""Configuration of a node: gunicorn -c python:shop.gunicorn_conf

With gunicorn's `gthread` workers, a node answers up to WEB_WORKERS x WEB_THREADS requests at a
time, so that many purchases run at once. `asgi` workers have an event loop, in which a purchase
waits for its lock without a thread (shop/asgi.py).
"""

import gc
import os
import resource
import shutil
import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import environ

from shop.ops.logs import make_gunicorn_config

environ.Env.read_env(Path(__file__).resolve().parent.parent / ".env")  # shop/settings.py does, too

#: Open files of a thread: its connections to Redis, PostgreSQL or ZooKeeper.
FILES_PER_THREAD = 3
#: Open files of a process besides those of its threads and the clients' connections.
OTHER_FILES = 100
#: Libraries that are imported before the workers are forked. Modules of the shop are not included,
#: because after SIGHUP only new workers import new code.
LIBRARIES = (
    "django.core.wsgi",
    "django.contrib.admin",
    "django.db.backends.postgresql.base",
    "psycopg_pool",
    "redis.sentinel",
)
#: Time after which a busy event loop passes the interpreter lock to a thread. With Python's default
#: of 5 ms, a purchase that holds a lock would wait for 5 ms after each of its statements.
SWITCH_INTERVAL_SECONDS = 0.0005


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files, to 65,536 if possible, and return the limit."""

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (65_536, 10_240):  # macOS has no hard limit, and refuses more than 10,240
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        if soft < limit:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                return limit
    return soft


#: gunicorn's worker classes, and the application that each serves.
SERVERS = {"gthread": "shop.wsgi", "asgi": "shop.asgi"}

worker_class = os.environ.get("WEB_SERVER", "") or "gthread"
if worker_class not in SERVERS:
    raise ValueError(f"WEB_SERVER is {worker_class!r}: use one of {', '.join(SERVERS)}")
wsgi_app = SERVERS[worker_class]
workers = int(os.environ.get("WEB_WORKERS", "2"))
threads = 1
if worker_class == "gthread":
    threads = int(os.environ.get("WEB_THREADS", "100"))
# Per process. More than there are threads, so that idle connections can be kept alive.
worker_connections = max(
    threads + 1, raise_open_file_limit() - threads * FILES_PER_THREAD - OTHER_FILES
)
forwarded_allow_ips = ""  # SHOP_BEHIND_PROXY says whether to trust a proxy's headers
asgi_loop = "asyncio"
asgi_lifespan = "off"
asgi_disconnect_grace_period = 0  # a client that is gone needs no answer
keepalive = 75  # the load test connects its buyers first, and starts all of them later
timeout = 60  # the load test's faults pause a worker for less time
# Longer than the longest wait for a lock, plus the purchase under the lock.
graceful_timeout = int(os.environ.get("WEB_GRACEFUL_TIMEOUT", "35"))
control_socket_disable = True  # nodes on one machine would use the same socket
loglevel = os.environ.get("LOG_LEVEL", "WARNING")
logconfig_dict = make_gunicorn_config(os.environ.get("LOG_FORMAT", "text"), loglevel)


#: prometheus-client's variable for the folder of the workers' counts.
METRICS_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# The settings read METRICS_TOKEN from either variable.
has_metrics = bool(os.environ.get("METRICS_TOKEN") or os.environ.get("METRICS_TOKEN_FILE"))


def choose_default_metrics_folder(server: Any) -> Path:
    """Return the folder for the workers' metrics, which the environment may override.

    The folder is in memory if possible, because workers write to its files all the time. Its name
    depends on the node's address, so that a new node finds and removes the files of a killed node.
    """
    parent = tempfile.gettempdir()
    if os.access("/dev/shm", os.W_OK):
        parent = "/dev/shm"
    address_digest = sha256(repr(server.cfg.address).encode()).hexdigest()[:12]
    return Path(parent, f"oversold-metrics-{os.getuid()}-{address_digest}")


def prepare_metrics_folder(server: Any) -> None:
    """Create or empty the folder into which the workers write their metrics.

    Raises RuntimeError if another user owns it.
    """
    folder = Path(
        os.environ.setdefault(METRICS_FOLDER_VARIABLE, str(choose_default_metrics_folder(server)))
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RuntimeError(
            f"{folder} belongs to another user: set {METRICS_FOLDER_VARIABLE} to your own folder"
        )
    # `master_pid` is set if this node replaces an old node after SIGUSR2. In that case the old node
    # still writes its metrics.
    if not server.master_pid:
        for file in folder.glob("*.db"):
            file.unlink(missing_ok=True)


def on_starting(server: Any) -> None:
    """Prepare the folder of metrics, and import the libraries once for all workers."""
    if has_metrics:
        prepare_metrics_folder(server)
    for name in LIBRARIES:
        import_module(name)
    # The workers share the memory of the libraries until something writes to it. The garbage
    # collector would write to it, so make it ignore all objects that exist now.
    gc.freeze()


def child_exit(server: Any, worker: Any) -> None:
    """Remove the gauges of a worker that has ended. Its counters stay in the totals."""
    if has_metrics:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(server: Any) -> None:
    """Remove the default folder of metrics, unless a node that replaces this one uses it."""
    if (
        has_metrics
        and os.environ.get(METRICS_FOLDER_VARIABLE) == str(choose_default_metrics_folder(server))
        and not server.reexec_pid  # the pid of the node that SIGUSR2 has started
    ):
        shutil.rmtree(os.environ[METRICS_FOLDER_VARIABLE], ignore_errors=True)


def post_worker_init(worker: Any) -> None:
    """Prepare a worker: open the database pool, so that the first buyers do not have to connect."""

    from django.db import connection

    from shop.ops import health

    gc.freeze()  # the garbage collector ignores the objects that are loaded by now, and is faster
    health.register_stopping_check(lambda: not worker.alive)
    if worker_class == "asgi":
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.open()
        if has_metrics:
            from shop.ops.metrics import watch_pool

            watch_pool()
