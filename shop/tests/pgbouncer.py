"""A real PgBouncer in transaction mode before the tests' PostgreSQL."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

from servers import embedded
from servers.loopback import free_port
from servers.process import ServerProcess

#: Seconds for it to listen.
START_TIMEOUT = 15.0
CONFIGURATION = """\
[databases]
* = host={host} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
{more}
"""


class PgBouncer:
    """Before the server of `database_url`, to which everybody is `user`. A context manager.

    more  further lines of its configuration
    """

    def __init__(self, database_url: str, *, user: str, more: str = "") -> None:
        parts = urlsplit(database_url)
        self.host = parse_qs(parts.query)["host"][0]
        self.database = parts.path.strip("/")
        self.user = user
        self.more = more
        self.port = free_port()

    @staticmethod
    def missing() -> str:
        """Why there is none, or an empty text."""
        return "" if _program() else "PgBouncer is not installed: apt-get install pgbouncer"

    @property
    def url(self) -> str:
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{self.database}"

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="oversold-pgbouncer-")
        folder = Path(self._folder.name)
        folder.chmod(0o755)
        file = folder / "pgbouncer.ini"
        file.write_text(
            CONFIGURATION.format(host=self.host, user=self.user, port=self.port, more=self.more)
        )
        owner = Path(self.host).stat().st_uid if os.getuid() == 0 else None  # it refuses root
        self._server = ServerProcess("PgBouncer", folder / "log")
        embedded.adopt(self._server.start([_program() or "pgbouncer", file], user=owner))
        self._server.wait_until(self._listens, timeout=START_TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._folder.cleanup()

    def _listens(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1):
            return True


def _program() -> str | None:
    """Debian puts it where a user's PATH may not lead."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
