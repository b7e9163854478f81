"""Fixed schedules of two buyers on MariaDB, at three isolation levels."""

import os
from collections.abc import Iterator

import pytest

from servers.mariadb import MariaDB
from servers.tests.running_mariadb import running_mariadb
from shop.tests.node import run_python
from shop.tests.schedules.run_script import run_script

#: Name of a mode in `--database mariadb@...` -> parameters of its URL.
MODES = {
    "read-committed": {"isolation_level": "read-committed"},
    "repeatable-read": {"isolation_level": "repeatable-read", "snapshot": "off"},
    "snapshot": {"isolation_level": "repeatable-read", "snapshot": "on"},
}


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[MariaDB]:
    with running_mariadb() as server:
        yield server


@pytest.mark.parametrize("mode", MODES)
def test_lock_after_the_snapshot_does_not_prevent_overselling(
    mariadb_server: MariaDB, mode: str
) -> None:
    """B's plain read under the lock misses the purchase that A committed while B waited.

    At REPEATABLE READ the only unit is then sold twice. Snapshot isolation refuses B's write.
    """
    orders = run_script(
        "late_lock",
        "lock-then-read",
        "lock-then-claim",
        "redis",
        database_url=mariadb_server.url(**MODES[mode]),
        redis_url=os.environ["REDIS_URL"],
    )
    orders_after_plain_read = 2 if mode == "repeatable-read" else 1
    assert orders == {"lock-then-read": orders_after_plain_read, "lock-then-claim": 1, "redis": 1}


@pytest.mark.parametrize("mode", MODES)
def test_transaction_alone_prevents_overselling_only_with_snapshot(
    mariadb_server: MariaDB, mode: str
) -> None:
    """Snapshot isolation refuses the write of a row that has changed since it was read.

    docs/databases.md has the same numbers: how many of the 20 schedules oversell.
    """
    oversold_by_strategy = run_script(
        "on_database",
        "none",
        "autocommit",
        "conditional",
        database_url=mariadb_server.url(**MODES[mode]),
        redis_url=os.environ["REDIS_URL"],
    )
    expected = {"none": 18, "autocommit": 12, "conditional": 0}
    if mode == "snapshot":
        expected["none"] = 0
    assert oversold_by_strategy == expected


#: A program that holds the lock of `advisory`, and prints the error of a buyer who waits for it.
PRINT_ERROR_OF_WAITING_BUYER = """
from concurrent.futures import ThreadPoolExecutor
from shop.tests.schedules.on_database import set_up
set_up()
from shop.sale.checkout import check_out
from shop.sale.opening import restock
from shop.sale.purchase import Attempt
from shop.strategies import advisory
advisory.LOCK_TIMEOUT_SECONDS = 1
restock(product="apple", amount=1, lock="advisory")
with advisory.hold_mysql_lock(Attempt("apple", "ada", "advisory")), ThreadPoolExecutor(1) as pool:
    error = pool.submit(check_out, Attempt("apple", "bob", "advisory")).exception()
    print(type(error).__name__)
"""


def test_buyer_who_waits_for_advisory_too_long_is_busy(mariadb_server: MariaDB) -> None:
    """The wait ends before the database client's timeout, although SHOP_LOCK_WAIT is longer."""
    completed = run_python(
        "-c",
        PRINT_ERROR_OF_WAITING_BUYER,
        DATABASE_URL=mariadb_server.url(),
        REDIS_URL=os.environ["REDIS_URL"],
        SHOP_LOCK_WAIT="30",
    )
    assert completed.stdout == "LockBusy\n", completed.stderr
