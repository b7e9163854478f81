"""Real servers for every test: the PostgreSQL of this working copy, and a Valkey for this run only.

A plugin (`-p shop.tests.servers`), because pytest-django reads the settings before any conftest.py.
"""

import os
import tempfile
from pathlib import Path

from servers import embedded

RESTOCK_TOKEN = "a-token-for-the-tests-alone"

_folder = tempfile.TemporaryDirectory(prefix="oversold-test-")
valkey = embedded.Valkey(Path(_folder.name))

embedded.attach()
embedded.kill_at_exit(valkey.start())
os.environ.update(
    REDIS_URL=valkey.url,
    SHOP_DB_POOL="0",  # one connection per thread, which a test can close
    SHOP_DEMO="1",
    SHOP_RESTOCK_TOKEN=RESTOCK_TOKEN,
)
embedded.provide_urls()


def pytest_unconfigure() -> None:
    valkey.stop()
    _folder.cleanup()
