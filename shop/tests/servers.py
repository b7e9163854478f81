"""A pytest plugin that provides real servers: PostgreSQL and Valkey.

The PostgreSQL server is the embedded one of this working copy, unless DATABASE_URL is set. The
Valkey server is started for this test run, and stopped at its end. This is a plugin
(`-p shop.tests.servers`), because pytest-django reads the settings, and with them the URLs of the
servers, before it imports any conftest.py.
"""

import atexit
import os
import tempfile
from pathlib import Path

from servers import embedded

#: The bearer token that the shop requires for POST /restock and for the list of orders.
RESTOCK_TOKEN = "a-token-for-the-tests-alone"

_folder = tempfile.TemporaryDirectory(prefix="oversold-test-")
# pytest does not call pytest_unconfigure() if a path on its command line does not exist.
atexit.register(_folder.cleanup)
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
