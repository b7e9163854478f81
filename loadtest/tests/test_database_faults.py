"""Faults of `make faults` on MariaDB and SQLite instead of PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.faults import Fault
from loadtest.faults.kinds.db_kill import DbKillFault
from loadtest.faults.kinds.pause import PauseFault
from loadtest.faults.kinds.unknown_commit import UnknownCommitFault
from loadtest.faults.runner import run_fault
from loadtest.faults.testbed import Testbed
from servers.tests.running_mariadb import require_mariadb

#: Enough for the buyers of all strategies of a test, who wait at the same time.
THREADS_PER_NODE = 40


@contextmanager
def run_testbed(folder: Path, database: str) -> Iterator[Testbed]:
    """Start a testbed with this database, but without the servers of Redlock and without ZooKeeper.

    folder  the folder for the testbed's log
    """
    with (
        (folder / "log").open("wb") as log,
        Testbed(log=log, threads=THREADS_PER_NODE, extras=False, database=database) as testbed,
    ):
        yield testbed


@pytest.fixture(scope="module")
def mariadb_testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Start a testbed with MariaDB, if it is installed."""
    require_mariadb()
    with run_testbed(tmp_path_factory.mktemp("mariadb"), "mariadb") as testbed:
        yield testbed


def run_expected_fault(testbed: Testbed, fault: type[Fault], *locks: str) -> dict[str, str]:
    """Make a fault under these strategies, and return the verdict on each.

    Assert that each verdict is the one in loadtest/expected.py.
    """
    cells = run_fault(fault(testbed), testbed.strategies(locks))
    assert [cell for cell in cells if not cell["as_expected"]] == []
    return {cell["lock"]: cell["verdict"] for cell in cells}


@pytest.mark.parametrize(
    ("fault", "token_verdict"),
    [(PauseFault, "oversold"), (UnknownCommitFault, "exact"), (DbKillFault, "exact")],
)
def test_verdicts_on_mariadb_are_the_same_as_on_postgresql(
    mariadb_testbed: Testbed, fault: type[Fault], token_verdict: str
) -> None:
    """The fault `pause` makes `token` oversell. All other verdicts are `exact`."""
    assert run_expected_fault(mariadb_testbed, fault, "token", "redis", "row-lock") == {
        "token": token_verdict,
        "redis": "exact",
        "row-lock": "exact",
    }


def test_token_does_not_oversell_on_sqlite_when_its_lock_expires(tmp_path: Path) -> None:
    """The victim is stopped until its lock expires, and then a rival gets the lock.

    SQLite lets the rival wait until the victim's transaction has ended, so the rival reads the new
    stock.
    """
    with run_testbed(tmp_path, "sqlite") as testbed:
        assert run_expected_fault(testbed, PauseFault, "token") == {"token": "exact"}
