"""Real servers for every test: PostgreSQL from the checkout's own, a Valkey for this run alone."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from shop import embedded

_folder = tempfile.TemporaryDirectory(prefix="oversold-test-")
_valkey = embedded.Valkey(Path(_folder.name))


# Before pytest-django reads the settings.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    embedded.attach()
    embedded.adopt(_valkey.start())
    os.environ["REDIS_URL"] = _valkey.url
    os.environ["SHOP_DB_POOL"] = "0"
    os.environ["SHOP_DEMO"] = "1"
    os.environ["SHOP_RESTOCK_TOKEN"] = "a-token-for-the-tests-alone"
    embedded.provide_urls()


def pytest_unconfigure() -> None:
    _valkey.stop()
    _folder.cleanup()
