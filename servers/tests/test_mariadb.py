"""MariaDB starts, listens on its socket only, and leaves nothing behind."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from servers import mariadb
from servers.embedded import ROOT
from servers.loopback import make_runtime_folder
from servers.mariadb import MariaDB
from servers.server_errors import EmbeddedError, NotReady

#: A program that starts and stops a MariaDB. Its arguments: the server's folder, and the log.
START_PROGRAM = """
import sys
from pathlib import Path
from servers.mariadb import MariaDB

with open(sys.argv[2], "wb") as log:
    server = MariaDB(Path(sys.argv[1]), log=log)
    server.start()
    try:
        server.wait_until_ready()
    finally:
        server.stop()
"""


#: The data of a new server is smaller than this, because its redo log has 8 MB instead of 96 MB.
MAX_NEW_DATA_BYTES = 60_000_000


@pytest.fixture
def require_server() -> None:
    """Skip the test if MariaDB is not installed. In CI, fail instead."""
    if mariadb.is_installed():
        return
    if os.environ.get("CI"):
        pytest.fail(mariadb.MISSING)
    pytest.skip(mariadb.MISSING)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a new folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="mdb-", dir=make_runtime_folder()) as name:
        yield Path(name)


@pytest.mark.usefixtures("require_server")
def test_server_starts_answers_and_stops(folder: Path) -> None:
    """The server listens on no TCP port, and needs little space for a new data folder."""
    with (folder / "log").open("wb") as log:
        server = MariaDB(folder, log=log, options={"innodb_snapshot_isolation": "ON"})
        pid = server.start()
        try:
            server.wait_until_ready()
            assert not psutil.Process(pid).net_connections(kind="inet")
            assert server.why_ended() == ""
        finally:
            server.stop()
    assert not psutil.pid_exists(pid)
    # The option --innodb-log-file-size keeps a new data folder small.
    data_bytes = sum(
        path.stat().st_size for path in server.data_folder.rglob("*") if path.is_file()
    )
    assert data_bytes < MAX_NEW_DATA_BYTES


@pytest.mark.usefixtures("require_server")
def test_second_start_keeps_the_database(folder: Path) -> None:
    with (folder / "log").open("wb") as log:
        server = MariaDB(folder, log=log)
        for _ in range(2):
            server.start()
            try:
                server.wait_until_ready()
            finally:
                server.stop()
    assert (server.data_folder / mariadb.DATABASE).is_dir()


@pytest.mark.usefixtures("require_server")
def test_temporary_tables_of_another_server_are_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a server starts, it deletes temporary tables only in its own folder, not in TMPDIR."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    table_of_another_server = tmp_path / "#sql-temptable-14db-1-3.MAI"
    table_of_another_server.touch()
    with (folder / "log").open("wb") as log:
        server = MariaDB(folder, log=log)
        server.start()
        try:
            server.wait_until_ready()
        finally:
            server.stop()
    assert table_of_another_server.exists()


@pytest.mark.usefixtures("require_server")
def test_server_starts_in_a_folder_with_a_non_ascii_name(folder: Path) -> None:
    """A new process starts the server, because Python reads LC_ALL only when it starts."""
    server_folder = folder / "ü"
    server_folder.mkdir()
    command = [sys.executable, "-c", START_PROGRAM, str(server_folder), str(folder / "log")]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        command, env=environment, cwd=server_folder, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.usefixtures("require_server")
def test_unknown_option_is_shown_with_the_log(folder: Path) -> None:
    with (folder / "log").open("wb") as log:
        server = MariaDB(folder, log=log, options={"no_such_option": "1"})
        server.start()
        with pytest.raises(NotReady, match="no-such-option"):
            server.wait_until_ready()
        server.stop()


def test_missing_server_is_an_error_with_advice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mariadb, "find_server_path", lambda: None)
    assert not mariadb.is_installed()
    with (folder / "log").open("wb") as log, pytest.raises(EmbeddedError, match="apt-get install"):
        MariaDB(folder, log=log).start()


def test_folder_too_deep_for_a_socket_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, pytest.raises(EmbeddedError, match="TMPDIR"):
        MariaDB(tmp_path / ("d" * 100), log=log).start()


def test_url_has_the_socket_and_the_parameters(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        server = MariaDB(Path("/run/x"), log=log)
    url = server.url(isolation_level="repeatable-read")
    path = "/run/x/mariadb.sock"
    assert url == f"mysql://root@localhost/shop?unix_socket={path}&isolation_level=repeatable-read"
