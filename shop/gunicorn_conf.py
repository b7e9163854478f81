"""How a node runs: gunicorn -c python:shop.gunicorn_conf

gunicorn's own workers. `gthread`: WEB_WORKERS x WEB_THREADS is the most requests that a node
answers at a time, so it is the width of the race. `asgi`: an event loop in which a purchase waits
for its lock without a thread (shop/asgi.py).
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

from shop.ops.logs import gunicorn_config

environ.Env.read_env(Path(__file__).resolve().parent.parent / ".env")  # as the settings do

#: Open files besides the clients' connections: for each thread those to Redis, PostgreSQL or
#: ZooKeeper, and what Python itself has open.
FILES_PER_THREAD, OTHER_FILES = 3, 100
#: Most of what a worker imports, but nothing of the shop's: SIGHUP brings new code, no libraries.
LIBRARIES = (
    "django.core.wsgi",
    "django.contrib.admin",
    "django.db.backends.postgresql.base",
    "psycopg_pool",
    "redis.sentinel",
)
#: Seconds for which a busy event loop keeps the interpreter lock from a thread. With Python's own
#: 5 ms a section under a lock would wait that long after each of its statements.
SWITCH = 0.0005


def raise_open_files() -> int:
    """Raise the soft limit of open files as far as the system lets it; return what it is then.

    A usual shell's 1,024 would make room for some 600 connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (65_536, 10_240):  # macOS names no hard limit, and refuses more than 10,240
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        if soft < wanted:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return wanted
    return soft


#: gunicorn's worker classes, and the application that each serves.
SERVERS = {"gthread": "shop.wsgi", "asgi": "shop.asgi"}

worker_class = os.environ.get("WEB_SERVER", "") or "gthread"
if worker_class not in SERVERS:
    raise ValueError(f"WEB_SERVER is {worker_class!r}: use one of {', '.join(SERVERS)}")
wsgi_app = SERVERS[worker_class]
workers = int(os.environ.get("WEB_WORKERS", "2"))
threads = int(os.environ.get("WEB_THREADS", "100")) if worker_class == "gthread" else 1
# of each process; more than threads, or no connection could be kept
worker_connections = max(threads + 1, raise_open_files() - threads * FILES_PER_THREAD - OTHER_FILES)
forwarded_allow_ips = ""  # SHOP_BEHIND_PROXY says whether to believe a proxy's headers
asgi_loop = "asyncio"
asgi_lifespan = "off"
asgi_disconnect_grace_period = 0  # a client that is gone waits for nothing
keepalive = 75  # a buyer's warm connection must outlast the wait at the barrier
timeout = 60  # longer than a pause of a worker in any fault
# longer than the longest wait for a lock and the section behind it
graceful_timeout = int(os.environ.get("WEB_GRACEFUL_TIMEOUT", "35"))
control_socket_disable = True  # both nodes would take the same one
loglevel = os.environ.get("WEB_LOG_LEVEL", "warning")
logconfig_dict = gunicorn_config(os.environ.get("LOG_FORMAT", "text"), loglevel)


#: The folder in which the workers count, and whether there is a METRICS_TOKEN, or a file of it.
COUNTS = "PROMETHEUS_MULTIPROC_DIR"
counted = bool(os.environ.get("METRICS_TOKEN") or os.environ.get("METRICS_TOKEN_FILE"))


def own_folder(server: Any) -> Path:
    """A folder for what the workers count, where the environment names none: in memory if that is
    to be had, for a count is a write into a mapped file; the same for each address, so that what a
    killed node left there is found again."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    listens = sha256(repr(server.cfg.address).encode()).hexdigest()[:12]
    return Path(memory, f"oversold-metrics-{os.getuid()}-{listens}")


def begin_to_count(server: Any) -> None:
    """Before the first worker: an empty folder. Raises RuntimeError for one of somebody else's."""
    folder = Path(os.environ.setdefault(COUNTS, str(own_folder(server))))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} is somebody else's: set {COUNTS} to a folder of yours")
    if not server.master_pid:  # else the node before this one still counts there (SIGUSR2)
        for file in folder.glob("*.db"):
            file.unlink(missing_ok=True)


def on_starting(server: Any) -> None:
    """Make a folder for what the workers count, and import the libraries once for all of them."""
    if counted:
        begin_to_count(server)
    for name in LIBRARIES:
        import_module(name)
    gc.freeze()


def child_exit(server: Any, worker: Any) -> None:
    """Forget the gauges of a worker that has ended. Its counts stay: a counter never falls."""
    if counted:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(server: Any) -> None:
    """Remove the folder of counts, if it is our own."""
    if counted and os.environ.get(COUNTS) == str(own_folder(server)) and not server.reexec_pid:
        shutil.rmtree(os.environ[COUNTS], ignore_errors=True)


def post_worker_init(worker: Any) -> None:
    """Open the database pool now: the first buyers should race, not connect. What is loaded stays:
    to walk through it for garbage took 0.2 s at the end of the process, and time in a rush."""
    from django.db import connection

    from shop.ops import health

    gc.freeze()
    health.is_stopping = lambda: not worker.alive
    if worker_class == "asgi":
        sys.setswitchinterval(SWITCH)
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.open()
        if counted:
            from shop.ops.metrics import watch_pool

            watch_pool()
