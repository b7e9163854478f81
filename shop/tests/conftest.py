"""Fixtures of the shop's tests. A fixture with `autouse` runs for every test."""

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from servers import embedded
from servers.postgres import Postgres
from servers.valkey import Valkey
from servers.zookeeper import MISSING as ZOOKEEPER_MISSING
from servers.zookeeper import ZooKeeper, is_installed
from shop import (
    urls,  # noqa: F401  (loaded before a test of `committed`, in which only one app is installed)
    views,
    wsgi,  # noqa: F401  (for the same reason)
)
from shop.ops import health
from shop.ops.redis import locks_client
from shop.reserve import promises
from shop.sale import known_products, reports
from shop.strategies import STRATEGIES, redlock, zookeeper
from shop.tests import servers as test_servers
from shop.tests.database import connect_outside_django
from shop.tests.outage import Outage


@pytest.fixture(autouse=True)
def _empty_redis() -> None:
    """Delete all keys in the Valkey that the tests share: locks, stock and cache."""
    locks_client().flushall()


@pytest.fixture(autouse=True)
def _forget_cached_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty the shop's caches in this process.

    They contain products, open sales, order numbers, the last readiness check and reports.
    """
    known_products._known_products.clear()
    promises._open_sales.clear()
    promises._order_numbers.clear()
    monkeypatch.setattr(health, "_last_check", None)
    # The shop caches a report for 1 s. In the tests it caches reports for 60 s, longer than a test
    # takes, so no cached report expires during a test.
    monkeypatch.setattr(views, "public_reports", reports.CachedReports(max_age_seconds=60))


@pytest.fixture(autouse=True)
def _silence_expected_logs() -> Iterator[None]:
    """Do not print log lines, such as warnings of refusals. caplog still records them."""
    root = logging.getLogger()
    handlers = [handler for handler in root.handlers if type(handler) is logging.StreamHandler]
    for handler in handlers:
        root.removeHandler(handler)
    yield
    for handler in handlers:
        root.addHandler(handler)


@pytest.fixture
def redis_outage() -> Iterator[Outage]:
    """An outage of the Valkey that the tests share. A test begins it; this fixture ends it."""
    outage = Outage(test_servers.valkey)
    yield outage
    outage.end()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Write a checkpoint after the last test, before pytest-django drops the test database.

    DROP DATABASE writes a checkpoint, too. If the tests have created many databases and the disk is
    slow, that checkpoint takes longer than the shop's statement_timeout, which then cancels the
    drop. The connection of this fixture has no such timeout.
    """
    yield
    with connect_outside_django() as outside_connection:
        outside_connection.execute("CHECKPOINT")


# --- servers for a real node ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket, unlike pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="oversold-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[Postgres]:
    """A PostgreSQL that only the tests of one module use, so these tests may stop it."""
    server = Postgres(folder / "postgres", runtime_folder=folder)
    server.start()
    embedded.kill_at_exit(server.pid)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def valkey(folder: Path) -> Iterator[Valkey]:
    """A Valkey that only the tests of one module use, so these tests may stop it."""
    server = Valkey(folder / "valkey")
    embedded.kill_at_exit(server.start())
    yield server
    server.stop()


# --- every strategy, and its servers --------------------------------------------------------------


@pytest.fixture(params=STRATEGIES)
def lock(request: pytest.FixtureRequest) -> str:
    """The name of a strategy. A test with this fixture runs once for every strategy.

    If the strategy needs additional servers, such as ZooKeeper, this fixture has started them.
    """
    name = str(request.param)
    required_setting = STRATEGIES[name].needs
    if required_setting:
        # The fixture that starts the servers is named after the setting: redlock_urls, ...
        request.getfixturevalue(required_setting.lower())
    return name


@pytest.fixture(scope="session")
def five_valkeys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[embedded.Valkey]]:
    """Five independent Valkey servers for all tests of Redlock, a lock on a majority of them."""
    valkeys = [embedded.Valkey(tmp_path_factory.mktemp("redlock")) for _ in range(5)]
    try:
        for valkey in valkeys:
            embedded.kill_at_exit(valkey.start())
        yield valkeys
    finally:
        for valkey in valkeys:
            valkey.stop()


@pytest.fixture
def redlock_urls(five_valkeys: list[embedded.Valkey], settings: Settings) -> Iterator[None]:
    """Set REDLOCK_URLS to five running Valkey servers, and delete their keys."""
    settings.REDLOCK_URLS = [valkey.url for valkey in five_valkeys]
    redlock.redlock_clients.cache_clear()
    for client in redlock.redlock_clients():
        client.flushall()
    yield
    for client in redlock.redlock_clients():
        client.close()
    redlock.redlock_clients.cache_clear()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A ZooKeeper for all tests.

    If ZooKeeper is not installed, the tests that use it are skipped. In CI they fail.
    """
    if not is_installed():
        if os.environ.get("CI"):
            pytest.fail(ZOOKEEPER_MISSING)
        pytest.skip(ZOOKEEPER_MISSING)
    folder = tmp_path_factory.mktemp("zookeeper")
    with (folder / "log").open("wb") as log:
        server = ZooKeeper(folder, log=log)
        embedded.kill_at_exit(server.start())
    try:
        server.wait_until_ready()
        yield server
        if zookeeper._connect_once.cache_info().currsize:  # a test has connected
            zookeeper.zookeeper_client().stop()
            zookeeper.zookeeper_client().close()
            zookeeper._connect_once.cache_clear()
    finally:
        server.stop()


@pytest.fixture
def zookeeper_hosts(zookeeper_server: ZooKeeper, settings: Settings) -> None:
    """Set ZOOKEEPER_HOSTS to a running ZooKeeper.

    The first buyer opens the shop's connection, which then stays open for all tests.
    """
    settings.ZOOKEEPER_HOSTS = zookeeper_server.hosts
