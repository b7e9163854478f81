"""A MariaDB server for a test."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from servers import mariadb
from servers.loopback import make_runtime_folder
from servers.mariadb import MariaDB


def require_mariadb() -> None:
    """Skip the test if MariaDB or its Python client is not installed. In CI, fail instead."""
    if not mariadb.is_installed():
        reason = mariadb.MISSING
    elif find_spec("pymysql") is None:
        reason = mariadb.CLIENT_MISSING
    else:
        return
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def running_mariadb() -> Iterator[MariaDB]:
    """Run a MariaDB server until the block ends.

    If MariaDB or its Python client is not installed, skip the test. In CI, fail instead.
    """
    require_mariadb()
    with (
        tempfile.TemporaryDirectory(prefix="mdb-", dir=make_runtime_folder()) as folder,
        tempfile.TemporaryFile() as log,
    ):
        server = MariaDB(Path(folder), log=log)
        server.start()
        try:
            server.wait_until_ready()
            yield server
        finally:
            server.stop()
