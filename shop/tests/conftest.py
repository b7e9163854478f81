"""What every test of the shop starts from."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from shop import urls, wsgi  # noqa: F401  (loaded before a test hides apps from them)
from shop.strategies.locked import locks_client
from shop.tests import servers
from shop.tests.outage import Outage


@pytest.fixture(autouse=True)
def _no_lock_is_left_of_another_test() -> None:
    locks_client().flushall()


@pytest.fixture(autouse=True)
def _expected_trouble_stays_out_of_the_output() -> Iterator[None]:
    """Refusals are logged as warnings; pytest still captures them where a test asks."""
    root = logging.getLogger()
    handlers = [handler for handler in root.handlers if type(handler) is logging.StreamHandler]
    for handler in handlers:
        root.removeHandler(handler)
    yield
    for handler in handlers:
        root.addHandler(handler)


@pytest.fixture
def redis_outage() -> Iterator[Outage]:
    """Kill this run's Valkey when told to, and have it back at the end of the test."""
    outage = Outage(servers.valkey)
    yield outage
    outage.end()
