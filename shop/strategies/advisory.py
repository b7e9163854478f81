"""pg_advisory_xact_lock: a named lock in the database, which ends with the transaction.

This is the database lock of article A1 (docs/sources.md), but on a name instead of a row.
pg_advisory_lock, without `xact`, would last until the end of the session, and behind a connection
pooler the session goes on after the purchase. MySQL and MariaDB have only a lock of the session,
GET_LOCK. That lock is acquired before the transaction begins and released after its commit. SQLite
has no such lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction

from shop.errors import LockBusy
from shop.ops.database import LOCK_TIMEOUT_SECONDS
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy

#: Length of the digest that MySQL gets instead of a lock's name, which may be longer than the 64
#: characters that MySQL allows. 32 hexadecimal digits are enough to tell all names apart.
MYSQL_LOCK_NAME_CHARACTERS = 32


@contextmanager
def hold_mysql_lock(attempt: Attempt) -> Iterator[None]:
    """Hold a named lock of MySQL for a block.

    Raises LockBusy after SHOP_LOCK_WAIT, or after LOCK_TIMEOUT_SECONDS if that is shorter. A longer
    wait would exceed the time that the client waits for a reply.

    MySQL also releases the lock if the connection ends.
    """
    name = sha256(attempt.lock_name.encode()).hexdigest()[:MYSQL_LOCK_NAME_CHARACTERS]
    with connection.cursor() as cursor:
        wait = min(settings.SHOP_LOCK_WAIT, LOCK_TIMEOUT_SECONDS)
        cursor.execute("SELECT GET_LOCK(%s, %s)", [name, wait])
        if not cursor.fetchone()[0]:  # 0 after the wait, NULL after an error
            raise LockBusy
    try:
        yield
    finally:
        # If the connection is lost, MySQL has released the lock.
        with suppress(DatabaseError, InterfaceError), connection.cursor() as cursor:
            cursor.execute("DO RELEASE_LOCK(%s)", [name])


def buy_on_mysql(attempt: Attempt) -> Receipt:
    with hold_mysql_lock(attempt), transaction.atomic(durable=True):
        return sell_one(attempt)


def buy(attempt: Attempt) -> Receipt:
    if connection.vendor == "mysql":
        return buy_on_mysql(attempt)
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute(
                # PostgreSQL identifies a lock by a number: here the hash of its name, with seed 0.
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
                [attempt.lock_name],
            )
        return sell_one(attempt)


STRATEGY = Strategy(
    rank=190,
    title="Advisory lock",
    article="A1 database lock",
    summary="A lock by name in the database that ends with the transaction.",
    highlights=("pg_advisory_xact_lock",),
    buy=buy,
    backend="postgresql",
    databases=("postgresql", "mysql"),
    sound=True,
)
