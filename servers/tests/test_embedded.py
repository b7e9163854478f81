"""The servers from the wheels, used by an ordinary user.

They are shared, stopped by their last user, and usable after any crash.
"""

import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import psutil
import psycopg
import pytest

from servers.loopback import runtime_folder
from servers.postgres import Postgres
from servers.server_errors import EmbeddedError
from servers.tests.copy_of_project import Copy, User, assert_gone, is_gone


def test_two_processes_share_the_servers(copy: Copy) -> None:
    with User(copy) as last:
        postgres, valkey = copy.postgres(), copy.valkey()
        with User(copy) as first:
            assert (first.database_url, first.redis_url) == (last.database_url, last.redis_url)
            # A forked child's end stops nothing.
            first.ask("os.waitpid(pid, 0) if (pid := os.fork()) else sys.exit()")
            psycopg.connect(first.ask("embedded.create_database('run_1')")).close()
            assert last.databases() >= {"oversold", "run_1"}
        assert [is_gone(postgres), is_gone(valkey)] == [False, False]
        assert "run_1" not in last.databases()
    assert_gone(postgres, valkey)


def test_terminated_user_stops_the_servers_too(copy: Copy) -> None:
    user = User(copy)
    servers = [copy.postgres(), copy.valkey()]
    user.process.send_signal(signal.SIGTERM)
    assert user.leave() == 128 + signal.SIGTERM
    assert_gone(*servers)


def test_next_user_cleans_up_after_a_killed_one(copy: Copy) -> None:
    killed = User(copy)
    killed.ask("embedded.create_database('run_2')")
    child = psutil.Process(killed.ask("child()"))
    servers = [copy.postgres(), copy.valkey()]
    killed.kill()
    assert [is_gone(process) for process in [child, *servers]] == [False] * 3
    with User(copy) as user:
        assert_gone(child)
        assert "run_2" not in user.databases()
        assert [copy.postgres(), copy.valkey()] == servers, "they are still used"
    assert_gone(*servers)


def test_killed_valkey_is_replaced_for_the_next_user(copy: Copy) -> None:
    with User(copy):
        copy.valkey().kill()
        with User(copy):
            assert not is_gone(copy.valkey())


def test_postgresql_keeps_its_data_over_restart_and_sigkill(copy: Copy) -> None:
    with User(copy) as user, psycopg.connect(user.database_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 43 AS number")
    killed = User(copy)
    assert killed.sql("TABLE kept") == [(43,)]
    postgres, valkey = copy.postgres(), copy.valkey()
    postgres.kill()
    killed.kill()
    assert (copy.data / "postmaster.pid").exists(), "it is stale: nobody removed it"
    with User(copy) as user:
        assert user.sql("TABLE kept") == [(43,)]
    assert_gone(postgres, valkey)


def test_stale_pid_of_another_program_does_not_prevent_start(
    copy: Copy,
) -> None:
    """After a reboot, or in a new container, small pids are soon used again.

    Here another PostgreSQL has the pid. If it were taken for ours, its socket would be looked for
    in the wrong folder.
    """
    with User(copy):
        pid = copy.data / "postmaster.pid"
        files = (pid, Path(pid.read_text().splitlines()[4]) / ".s.PGSQL.5432.lock")
        stale = {file: file.read_text() for file in files}
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as beside:
        other = beside.info.backend_pid
        assert psutil.Process(other).name() == "postgres"
        for file, text in stale.items():
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join([str(other), *text.splitlines()[1:]]) + "\n")
            for path in (file.parent, file):
                shutil.chown(path, copy.data.owner(), copy.data.group())
        with User(copy) as user:
            assert user.databases() >= {"oversold"}
            assert copy.postgres().pid != other
        assert beside.execute("SELECT 1").fetchone() == (1,), "the other one still runs"


def test_postgresql_is_durable_and_listens_on_loopback_only(
    copy: Copy,
) -> None:
    expected_settings = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "max_connections": "1000",
    }
    with User(copy) as user:
        settings = dict(user.sql("SELECT name, setting FROM pg_settings"))
        sockets = copy.valkey().net_connections("inet")
    assert settings.items() >= expected_settings.items()
    assert {
        connection.laddr.ip for connection in sockets if connection.status == psutil.CONN_LISTEN
    } == {"127.0.0.1"}


def test_ordinary_user_in_a_deep_folder_migrates_and_sells(copy: Copy) -> None:
    assert len(str(copy.data)) > 100, "a Unix socket's path would not fit"
    with User(copy):
        assert copy.postgres().uids().real != 0
        for command, says in (
            ("migrate --verbosity 0", ""),
            ("restock --stock 7", "sale 2 is open: 7 units of apple\n"),
            ("check_stack", None),
        ):
            done = copy.run(sys.executable, "manage.py", *command.split())
            assert (done.returncode, done.stderr) == (0, "")
            assert says in (None, done.stdout)


def test_unwritable_files_are_refused_with_advice(copy: Copy) -> None:
    if os.getuid() == 0 and not copy.prefix:
        pytest.skip("root needs setpriv (util-linux) to become an ordinary user")
    User(copy).leave()
    lock = copy.root / "var" / "lock"
    lock.chmod(0o444)
    refused = copy.run(sys.executable, "manage.py", "check_stack")
    lock.chmod(0o644)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"no permission to write {lock}: run as the user who owns it")


def test_wheel_may_be_in_an_unusual_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """initdb passes the path of its programs to a shell, so they are copied to a plain path."""
    monkeypatch.setattr("servers.initdb.SHELL_CHARACTERS", re.compile("site-packages"))
    with tempfile.TemporaryDirectory(prefix="oversold-") as folder:
        server = Postgres(tmp_path / "data", runtime=Path(folder))
        server.start()
        try:
            host = str(server.socket_folder())
            psycopg.connect(host=host, user="postgres", dbname="postgres").close()
        finally:
            server.stop()
        assert [path.name for path in Path(folder).iterdir()] == ["wheel"], "the copy is gone"


def test_error_includes_the_message_of_initdb(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in the way").touch()
    with pytest.raises(EmbeddedError, match=r"set DATABASE_URL(.|\n)*exists but is not empty"):
        Postgres(tmp_path / "data", runtime=runtime_folder()).start()
    assert caplog.text == "", "said once"
