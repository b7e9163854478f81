"""How the shop connects to PostgreSQL: timeouts on both sides of the connection, and the pool.

PostgreSQL ends a statement, a wait for a lock and an idle transaction by itself (TIMEOUTS_MS). That
helps nobody whose PostgreSQL is out of reach: the client has limits of its own, or the holder of a
lock would keep everybody out until the network is back.
"""

from typing import Any

from psycopg import Connection, OperationalError
from psycopg.abc import RV, PQGen

#: Milliseconds, in the order that keeps a stuck buyer from outliving its lock:
#: idle in transaction < lock < statement < REPLY_TIMEOUT < ttl < the client's timeout < gunicorn's.
TIMEOUTS_MS = {
    "idle_in_transaction_session_timeout": 6_000,
    "lock_timeout": 7_000,
    "statement_timeout": 8_000,
}
#: Seconds without a reply after which the client closes the connection.
REPLY_TIMEOUT = 9.0
#: What the kernel does where packets get no answer: bytes that are not acknowledged within 5 s end
#: the connection, and so do three probes of an idle one. A Unix socket has none of this.
TCP = {
    "connect_timeout": 3,
    "tcp_user_timeout": 5_000,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


class Silence(OperationalError):
    """PostgreSQL did not reply in time. The connection is closed."""


class BoundedConnection(Connection[Any]):
    """A connection whose every wait for a reply ends after `reply_timeout` seconds, in Silence."""

    reply_timeout = REPLY_TIMEOUT

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.reply_timeout)
        except OperationalError as error:
            if type(error).__name__ != "_WaitTimeout":  # psycopg's own name for it is private
                raise
            self.close()
            raise Silence(f"no reply within {self.reply_timeout:g} s") from error


def database(settings: dict[str, Any], *, pool: int, pooler: bool) -> dict[str, Any]:
    """Django's settings of a database, with the shop's timeouts; what its URL says wins.

    settings  as django-environ reads them from the URL
    pool      connections per process; 0 for one per thread, without REPLY_TIMEOUT
    pooler    the URL leads to PgBouncer: it refuses startup options, so the role must bring
              TIMEOUTS_MS (ALTER ROLE ... SET); /readyz says whether it does
    """
    options: dict[str, Any] = {**TCP, **settings.get("OPTIONS", {})}
    if not pooler:
        ours = " ".join(f"-c {name}={value}" for name, value in TIMEOUTS_MS.items())
        options["options"] = f"{ours} {options.get('options', '')}".strip()
    if pool:
        options["pool"] = {
            "connection_class": BoundedConnection,
            "min_size": pool,
            "max_size": pool,
            "timeout": 6,
            "reconnect_timeout": 5,  # its pauses double: longer, and it sleeps through the recovery
        }
    return {**settings, "OPTIONS": options, "DISABLE_SERVER_SIDE_CURSORS": pooler}
