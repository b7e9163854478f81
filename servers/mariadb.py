"""MariaDB from Debian's package, if the package is installed."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlencode

from servers.loopback import MAX_SOCKET_PATH_BYTES
from servers.process import ServerProcess
from servers.server_errors import EmbeddedError, add_disk_advice

#: Messages, with what to do, if the server or the Python client is missing.
MISSING = "MariaDB is not installed: apt-get install --no-install-recommends mariadb-server-core"
CLIENT_MISSING = "PyMySQL is not installed: make install-mysql"
#: Folders of the server that are only in root's PATH on Debian.
SERVER_FOLDERS = ["/usr/sbin", "/usr/libexec", "/usr/local/sbin"]
#: The package's files with the statements that create MariaDB's own tables.
SYSTEM_TABLES_FOLDER = Path("/usr/share/mysql")
SYSTEM_TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)
#: The database that a new server has for the shop.
DATABASE = "shop"
#: Strings that differ in case, in an accent or in trailing spaces are different keys.
COLLATION = "utf8mb4_nopad_bin"
#: Every thread of every worker keeps a connection. MariaDB's own default is 151.
MAX_CONNECTIONS = 1000
BOOTSTRAP_TIMEOUT_SECONDS = 60.0
#: Time limit for the server to answer after its start.
START_TIMEOUT_SECONDS = 30.0
#: The server's greeting begins with four bytes of header; the fifth is the protocol's version.
GREETING_BYTES = 5
PROTOCOL_VERSION = 10


def find_server_path() -> str | None:
    """Return the path of the server's program, or None if it is not installed."""
    search_path = os.pathsep.join([os.environ.get("PATH", "")] + SERVER_FOLDERS)
    return shutil.which("mariadbd", path=search_path)


def is_installed() -> bool:
    """Return whether MariaDB's server is installed. MISSING says how to install it."""
    has_tables = all((SYSTEM_TABLES_FOLDER / name).exists() for name in SYSTEM_TABLES)
    return find_server_path() is not None and has_tables


class MariaDB:
    """A MariaDB server that listens on a Unix socket only.

    The database's user root needs no password, so no other user of the system may enter `folder`.

    folder   the folder of its data and its socket; its path must be short
    log      the file of its output
    options  system variables of the server, such as {"innodb_snapshot_isolation": "ON"}
    """

    def __init__(
        self, folder: Path, *, log: IO[bytes], options: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.log = log
        self.options = dict(options or {})
        self.data_folder = folder / "mariadb"
        self.socket = folder / "mariadb.sock"
        self._process = ServerProcess("MariaDB", log)

    def url(self, **parameters: str) -> str:
        """Return the URL of the database `shop`, with the socket and these further parameters."""
        query = urlencode(
            {"unix_socket": str(self.socket), **parameters}, safe="/", quote_via=quote
        )
        return f"mysql://root@localhost/{DATABASE}?{query}"

    def start(self) -> int:
        """Start the server and return its pid. Call wait_until_ready() before using it.

        The first start creates the data. Raises EmbeddedError if that fails, if MariaDB is not
        installed, or if the path of the socket is too long.
        """
        if len(os.fsencode(self.socket)) > MAX_SOCKET_PATH_BYTES:
            raise EmbeddedError(
                f"{self.socket} is too long for the path of a socket: set TMPDIR=/tmp"
            )
        if not self.data_folder.exists():
            self._create_data_folder()
        command = self._command()
        command += [
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'mariadb.pid'}",
            "--skip-networking",
            f"--max-connections={MAX_CONNECTIONS}",
        ]
        for name, value in self.options.items():
            command.append(f"--{name.replace('_', '-')}={value}")
        return self._process.start(command, folder=self.folder)

    def wait_until_ready(self) -> None:
        """Wait until the server answers. Raises EmbeddedError."""
        self._process.wait_until(self._is_answering, timeout=START_TIMEOUT_SECONDS)

    def why_ended(self) -> str:
        """Return a message if the server ended by itself; otherwise an empty text."""
        return self._process.why_ended()

    def stop(self) -> None:
        """Kill the server. Nothing happens if it does not run."""
        self._process.stop(first_signal=signal.SIGKILL)

    def _command(self) -> list[str]:
        """Return the server's program, with the options that every start needs.

        Raises EmbeddedError if MariaDB is not installed.
        """
        server = find_server_path()
        if server is None:
            raise EmbeddedError(MISSING)
        command = [server, "--no-defaults"]
        if os.getuid() == 0:  # MariaDB runs as root only with this option
            command.append("--user=root")
        command.append(f"--datadir={self.data_folder}")
        # The default is /tmp. But at its start a server deletes all temporary tables in its tmpdir,
        # including those of other servers.
        command.append(f"--tmpdir={self.folder}")
        # The default is 96 MB, which the first start would fill with zeros.
        command.append("--innodb-log-file-size=8M")
        return command

    def _create_data_folder(self) -> None:
        """Create MariaDB's own tables and the database `shop`. Raises EmbeddedError.

        Debian's mariadb-install-db does the same, but needs a program from the client's package.
        """
        try:
            tables = [(SYSTEM_TABLES_FOLDER / name).read_bytes() for name in SYSTEM_TABLES]
        except OSError as error:
            raise EmbeddedError(MISSING) from error
        statements = [b"CREATE DATABASE mysql;", b"USE mysql;"]
        # MariaDB's user root needs no password, whichever user of the system connects.
        statements.append(b"SET @auth_root_socket=NULL;")
        statements += tables
        statements += [f"CREATE DATABASE {DATABASE} COLLATE {COLLATION};".encode(), b""]
        self.data_folder.mkdir(parents=True)
        try:
            subprocess.run(
                self._command() + ["--bootstrap"],
                input=b"\n".join(statements),
                stdout=self.log,
                stderr=subprocess.STDOUT,
                timeout=BOOTSTRAP_TIMEOUT_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(self.data_folder, ignore_errors=True)
            details = add_disk_advice(self._process.tail())
            raise EmbeddedError(
                f"MariaDB could not create its data folder: {error}\n{details}"
            ) from error

    def _is_answering(self) -> bool:
        """Return whether the server greets a client. Raises OSError if it does not listen."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(self.socket))
            greeting = connection.recv(GREETING_BYTES, socket.MSG_WAITALL)
        return greeting[-1:] == bytes([PROTOCOL_VERSION])
