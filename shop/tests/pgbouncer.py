"""A real PgBouncer in transaction mode before the tests' PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from servers import embedded
from shop.tests.till import eventually

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
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

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
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [_program() or "pgbouncer", file],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=owner,
            )
        embedded.adopt(self._process.pid)
        eventually(self._listens, what="PgBouncer listens")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(10)
        self._folder.cleanup()

    def _listens(self) -> bool:
        assert self._process.poll() is None, "PgBouncer ended"
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


def _program() -> str | None:
    """Debian puts it where a user's PATH may not lead."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
