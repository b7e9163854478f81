"""Fixed schedules of two buyers on MariaDB, at three isolation levels."""

import os
from collections.abc import Iterator

import pytest

from servers.mariadb import MariaDB
from servers.tests.running_mariadb import running_mariadb
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
def test_late_lock_reads_an_old_snapshot(mariadb_server: MariaDB, mode: str) -> None:
    """B's plain read under the lock misses the purchase that A committed while B waited.

    Then the only unit is sold twice. That happens only at REPEATABLE READ without snapshot
    isolation, which would refuse B's write.
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
def test_transaction_alone_does_not_protect(mariadb_server: MariaDB, mode: str) -> None:
    """Snapshot isolation refuses the write of a row that has changed since it was read.

    The expected numbers of oversold schedules, of 20, are those of docs/databases.md.
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
