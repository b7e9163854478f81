"""How a node runs: gunicorn -c python:shop.gunicorn_conf shop.wsgi

WEB_WORKERS x WEB_THREADS is the most purchases that a node has in flight, so it is the width of
the race; both are shown with every result.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import environ

from shop.observability import processes
from shop.observability.logs import gunicorn_config

environ.Env.read_env(Path(__file__).resolve().parent.parent / ".env")  # as the settings do

worker_class = "gthread"
workers = int(os.environ.get("WEB_WORKERS", "2"))
threads = int(os.environ.get("WEB_THREADS", "100"))
keepalive = 75  # a buyer's warm connection must outlast the wait at the barrier
timeout = 60  # longer than a pause of a worker in any fault
# longer than the longest wait for a lock and the section behind it
graceful_timeout = int(os.environ.get("WEB_GRACEFUL_TIMEOUT", "35"))
control_socket_disable = True  # both nodes would take the same one
accesslog = None
errorlog = "-"
loglevel = os.environ.get("WEB_LOG_LEVEL", "warning")
logconfig_dict = gunicorn_config(os.environ.get("LOG_FORMAT", "text"), loglevel)


def on_starting(server: Any) -> None:
    """A folder for what the workers count."""
    processes.begin(server)


def child_exit(server: Any, worker: Any) -> None:
    """What a worker that is gone showed as present is forgotten."""
    processes.worker_is_gone(worker.pid)


def on_exit(server: Any) -> None:
    """Nothing is left in memory."""
    processes.end(server)


def post_worker_init(worker: Any) -> None:
    """Open the database pool now: the first buyers should race, not connect."""
    from django.db import connection

    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.open()
        if processes.wanted():
            from shop.observability.pool import watch

            watch()
