"""Connections to PostgreSQL: timeouts on both sides of the connection, and the pool.

PostgreSQL itself limits statements, waits for locks and idle transactions (TIMEOUTS_MS). The client
has limits, too, for the case that PostgreSQL is unreachable. Otherwise the holder of a lock would
block all other buyers until the network is back.
"""

from typing import Any

from psycopg import Connection, OperationalError
from psycopg.abc import RV, PQGen

#: Milliseconds, in the order that keeps a stuck buyer from outliving its lock:
#: idle in transaction < lock < statement < REPLY_TIMEOUT_SECONDS < ttl < the HTTP client's timeout
#: < gunicorn's worker timeout.
TIMEOUTS_MS = {
    "idle_in_transaction_session_timeout": 6_000,
    "lock_timeout": 7_000,
    "statement_timeout": 8_000,
}
#: Seconds without a reply after which the client closes the connection.
REPLY_TIMEOUT_SECONDS = 9.0
#: Options of libpq, in seconds; tcp_user_timeout is in milliseconds. A connection ends if sent
#: bytes are not acknowledged for 5 s or, while it is idle, after three unanswered probes. Only
#: connect_timeout has an effect on a Unix socket.
TCP_OPTIONS = {
    "connect_timeout": 3,
    "tcp_user_timeout": 5_000,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


class ReplyTimeout(OperationalError):
    """PostgreSQL did not reply in time. The connection is closed."""


def is_wait_timeout(error: OperationalError) -> bool:
    """Return whether psycopg's Connection.wait() gave up after its `timeout`.

    The class of this error is private in psycopg; shop/tests/ops/test_postgres.py checks its name.
    """
    return type(error).__name__ == "_WaitTimeout"


class BoundedConnection(Connection[Any]):
    """A connection that raises ReplyTimeout after `reply_timeout` seconds without a reply.

    If psycopg calls wait() with a timeout, that timeout applies instead, with psycopg's own error.
    """

    reply_timeout = REPLY_TIMEOUT_SECONDS

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for a reply. psycopg calls this method; its generator `gen` reads the reply."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.reply_timeout)
        except OperationalError as error:
            if not is_wait_timeout(error):
                raise
            self.close()
            raise ReplyTimeout(f"no reply within {self.reply_timeout:g} s") from error


def make_postgresql_settings(
    url_settings: dict[str, Any], *, pool_size: int, is_pgbouncer: bool
) -> dict[str, Any]:
    """Return Django's settings of a PostgreSQL database, with the shop's timeouts.

    Options in the URL override the shop's.

    url_settings  the settings that django-environ reads from the URL
    pool_size     connections per process. If it is 0, there is no pool: each thread has its own
                  connection, which has no ReplyTimeout
    is_pgbouncer  whether the URL points to PgBouncer, which refuses timeouts as options. So the
                  timeouts must be set for the role (ALTER ROLE ... SET)
    """
    options: dict[str, Any] = {**TCP_OPTIONS, **url_settings.get("OPTIONS", {})}
    if not is_pgbouncer:
        timeouts = " ".join(f"-c {name}={limit}" for name, limit in TIMEOUTS_MS.items())
        options["options"] = f"{timeouts} {options.get('options', '')}".strip()
    if pool_size:
        options["pool"] = {
            "connection_class": BoundedConnection,
            "min_size": pool_size,
            "max_size": pool_size,
            "timeout": 6,  # seconds for which a thread waits for a free connection
            # The pool doubles its pause after each failed attempt to connect. The limit is low, so
            # that the pool connects soon after the server is back.
            "reconnect_timeout": 5,
        }
    return {**url_settings, "OPTIONS": options, "DISABLE_SERVER_SIDE_CURSORS": is_pgbouncer}
