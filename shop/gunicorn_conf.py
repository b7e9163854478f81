"""How a node runs: gunicorn -c python:shop.gunicorn_conf shop.wsgi

WEB_WORKERS x WEB_THREADS is the most purchases that a node has in flight, so it is the width of
the race; both are shown with every result.
"""

from __future__ import annotations

import os
from typing import Any

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


def post_worker_init(worker: Any) -> None:
    """Open the database pool now: the first buyers should race, not connect."""
    from django.db import connection

    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.open()
