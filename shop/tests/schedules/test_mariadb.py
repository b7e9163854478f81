"""Two buyers whose moves happen in a fixed order (a schedule), on MariaDB.

The modes are READ COMMITTED, REPEATABLE READ and snapshot isolation.
"""

import os
from collections.abc import Iterator

import pytest

from servers.mariadb import MariaDB
from servers.tests.running_mariadb import running_mariadb
from shop.tests.node import run_python
from shop.tests.schedules.run_script import run_script

#: Name of a mode, as in `--database mariadb@NAME` -> parameters of the database URL.
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
def test_plain_read_under_a_late_lock_oversells_at_repeatable_read(
    mariadb_server: MariaDB, mode: str
) -> None:
    """Buyer B begins its transaction, then waits for the lock until buyer A has committed.

    `lock-then-read` reads the stock by a plain SELECT. At REPEATABLE READ this SELECT does not see
    A's purchase, so the only unit is sold twice. Snapshot isolation refuses B's write.
    `lock-then-claim` reads by an UPDATE, and `redis` locks before the transaction, so both sell the
    unit once in each mode.
    """
    orders_by_strategy = run_script(
        "late_lock",
        "lock-then-read",
        "lock-then-claim",
        "redis",
        database_url=mariadb_server.url(**MODES[mode]),
        redis_url=os.environ["REDIS_URL"],
    )
    orders_after_plain_read = 2 if mode == "repeatable-read" else 1
    assert orders_by_strategy == {
        "lock-then-read": orders_after_plain_read,
        "lock-then-claim": 1,
        "redis": 1,
    }


@pytest.mark.parametrize("mode", MODES)
def test_transaction_alone_prevents_overselling_only_with_snapshot(
    mariadb_server: MariaDB, mode: str
) -> None:
    """The strategy `none`, a transaction without a lock, oversells unless the mode is `snapshot`.

    Snapshot isolation refuses the write of a row that has changed since it was read. The expected
    numbers, how many of the 20 schedules oversell, are also in docs/databases.md.
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


#: A program in which the buyer `ada` holds the lock of the strategy `advisory`, and the buyer `bob`
#: waits for it. The program prints the class of bob's error.
PRINT_ERROR_OF_WAITING_BUYER = """
from concurrent.futures import ThreadPoolExecutor
from shop.tests.schedules.on_database import set_up_shop
set_up_shop()
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


def test_advisory_waits_at_most_the_database_lock_timeout(mariadb_server: MariaDB) -> None:
    """A buyer under `advisory` is refused after LOCK_TIMEOUT_SECONDS, here 1 s.

    SHOP_LOCK_WAIT is longer, but a wait of that length would exceed the time that the database
    client waits for a reply.
    """
    completed = run_python(
        "-c",
        PRINT_ERROR_OF_WAITING_BUYER,
        DATABASE_URL=mariadb_server.url(),
        REDIS_URL=os.environ["REDIS_URL"],
        SHOP_LOCK_WAIT="30",
    )
    assert completed.stdout == "LockBusy\n", completed.stderr
