"""The embedded servers: a PostgreSQL and a Valkey from Python wheels, used by an ordinary user.

All processes of a checkout share the servers. The last process that uses them stops them. They are
usable after any crash. A ProcessWithServers is a process that uses them.
"""

import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import psycopg
import pytest

from servers import initdb
from servers.loopback import MAX_SOCKET_PATH_BYTES, make_runtime_folder
from servers.postgres import SOCKET_FOLDER_LINE, Postgres
from servers.server_errors import EmbeddedError
from servers.tests.copy_of_project import ProcessWithServers, ProjectCopy, assert_gone, is_gone


def test_two_processes_share_the_servers(project: ProjectCopy) -> None:
    """Only the last process that uses the servers stops them, and no forked child does.

    A database that a process created, here run_1, is removed when the process ends.
    """
    with ProcessWithServers(project) as last_process:
        servers = [project.find_postgres(), project.find_valkey()]
        with ProcessWithServers(project) as process:
            assert process.database_url == last_process.database_url
            assert process.redis_url == last_process.redis_url
            process.evaluate("fork_a_child_that_ends()")
            psycopg.connect(process.evaluate("embedded.create_database('run_1')")).close()
            assert last_process.list_databases() >= {"oversold", "run_1"}
        assert not any(map(is_gone, servers))
        assert "run_1" not in last_process.list_databases()
    assert_gone(*servers)


def test_terminated_process_stops_the_servers_too(project: ProjectCopy) -> None:
    """The servers stop when SIGTERM ends the only process that uses them."""
    terminated_process = ProcessWithServers(project)
    servers = [project.find_postgres(), project.find_valkey()]
    terminated_process.process.send_signal(signal.SIGTERM)
    assert terminated_process.end_and_wait() == 128 + signal.SIGTERM
    assert_gone(*servers)


def test_next_process_cleans_up_after_a_kill(project: ProjectCopy) -> None:
    """A killed process leaves its child, its database and the servers."""
    killed_process = ProcessWithServers(project)
    killed_process.evaluate("embedded.create_database('run_2')")
    child = psutil.Process(killed_process.evaluate("start_child()"))
    servers = [project.find_postgres(), project.find_valkey()]
    killed_process.kill()
    assert not any(map(is_gone, [child, *servers]))  # the killed process had no time to clean up
    with ProcessWithServers(project) as process:
        assert_gone(child)
        assert "run_2" not in process.list_databases()
        # The new process uses the servers that the killed process has left, without a restart.
        assert [project.find_postgres(), project.find_valkey()] == servers
    assert_gone(*servers)


def test_killed_valkey_is_replaced_for_the_next_process(project: ProjectCopy) -> None:
    """The next process that uses the servers starts Valkey again, while the first still runs."""
    with ProcessWithServers(project):
        project.find_valkey().kill()
        with ProcessWithServers(project):
            assert not is_gone(project.find_valkey())


def test_postgresql_keeps_its_data_after_a_restart_and_sigkill(project: ProjectCopy) -> None:
    """The data outlast the normal stop when the last process ends, and later a SIGKILL."""
    with (
        ProcessWithServers(project) as process,
        psycopg.connect(process.database_url) as connection,
    ):
        connection.execute("CREATE TABLE kept AS SELECT 43 AS number")
    killed_process = ProcessWithServers(project)
    assert killed_process.sql("TABLE kept") == [(43,)]
    postgres, valkey = project.find_postgres(), project.find_valkey()
    postgres.kill()
    killed_process.kill()
    assert (project.data / "postmaster.pid").exists()  # a killed server leaves this file
    with ProcessWithServers(project) as process:
        assert process.sql("TABLE kept") == [(43,)]
    assert_gone(postgres, valkey)


def test_stale_pid_of_another_program_does_not_prevent_start(project: ProjectCopy) -> None:
    """After a reboot, or in a new container, another program may soon have the stale pid.

    Here the pid belongs to the PostgreSQL of the tests, so the name of the process, `postgres`,
    does not show that the pid is stale.
    """
    with ProcessWithServers(project):
        pid_file = project.data / "postmaster.pid"
        socket_folder = Path(pid_file.read_text().splitlines()[SOCKET_FOLDER_LINE])
        lock_file = socket_folder / ".s.PGSQL.5432.lock"
        text_by_file = {file: file.read_text() for file in (pid_file, lock_file)}
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other_connection:
        other_pid = other_connection.info.backend_pid
        assert psutil.Process(other_pid).name() == "postgres"
        for file, text in text_by_file.items():
            file.parent.mkdir(exist_ok=True)  # the stop has removed the socket's folder
            lines = [str(other_pid)] + text.splitlines()[1:]
            file.write_text("\n".join(lines) + "\n")
            for path in (file.parent, file):
                shutil.chown(path, project.data.owner(), project.data.group())
        with ProcessWithServers(project) as process:
            assert process.list_databases() >= {"oversold"}
            assert project.find_postgres().pid != other_pid
        # The process that has the stale pid was not stopped.
        assert other_connection.execute("SELECT 1").fetchone() == (1,)


def test_postgresql_is_durable_and_both_servers_are_local(project: ProjectCopy) -> None:
    """PostgreSQL listens only on a Unix socket, and Valkey only on 127.0.0.1."""
    expected_settings = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "max_connections": "1000",
    }
    with ProcessWithServers(project) as process:
        settings = dict(process.sql("SELECT name, setting FROM pg_settings"))
        connections = project.find_valkey().net_connections("inet")
    assert settings.items() >= expected_settings.items()
    listening_addresses = {
        connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN
    }
    assert listening_addresses == {"127.0.0.1"}


def test_ordinary_user_in_a_deep_folder_migrates_and_sells(project: ProjectCopy) -> None:
    """The path of the data folder is too long for a Unix socket."""
    assert len(str(project.data)) > MAX_SOCKET_PATH_BYTES
    with ProcessWithServers(project):
        assert project.find_postgres().uids().real != 0
        assert run_manage_py(project, "migrate", "--verbosity", "0") == ""
        # The migrations open sale 1.
        assert (
            run_manage_py(project, "restock", "--stock", "7")
            == "sale 2 is open: 7 units of apple\n"
        )
        run_manage_py(project, "check_stack")


def run_manage_py(project: ProjectCopy, *arguments: str) -> str:
    """Run manage.py, which must succeed, and return its output."""
    process = project.run(sys.executable, "manage.py", *arguments)
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


def test_unwritable_files_are_refused_with_advice(project: ProjectCopy) -> None:
    """The lock file of the registry, var/lock, is read-only."""
    if os.getuid() == 0 and not project.command_prefix:
        pytest.skip("root needs setpriv (util-linux) to become an ordinary user")
    ProcessWithServers(project).end_and_wait()  # the first process with servers creates var/lock
    lock_file = project.root / "var" / "lock"
    lock_file.chmod(0o444)
    process = project.run(sys.executable, "manage.py", "check_stack")
    lock_file.chmod(0o644)
    assert process.returncode == 1
    advice = f"no permission to write {lock_file}: run as the user who owns it"
    assert process.stderr.startswith(advice)


def test_wheel_may_be_in_an_unusual_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If its path has characters that a shell treats specially, the wheel is copied elsewhere.

    initdb passes the path to a shell. For this test `site-packages`, which every path of a wheel
    contains, counts as such a character.
    """
    monkeypatch.setattr("servers.initdb.SHELL_CHARACTERS", re.compile("site-packages"))
    with tempfile.TemporaryDirectory(prefix="oversold-") as folder:
        server = Postgres(tmp_path / "data", runtime_folder=Path(folder))
        server.start()
        try:
            host = str(server.socket_folder())
            psycopg.connect(host=host, user="postgres", dbname="postgres").close()
        finally:
            server.stop()
        # The copy was removed. plain_environment() made the folder `wheel`.
        assert [path.name for path in Path(folder).iterdir()] == ["wheel"]


def test_start_waits_for_a_server_that_another_process_is_starting(tmp_path: Path) -> None:
    """start() finds a running server that is not ready yet, and waits for it.

    Another process has just started the server. Here the test writes the status `starting` into
    postmaster.pid, as if the server was not ready, and `ready` after 0.3 s.
    """
    server = Postgres(tmp_path / "data", runtime_folder=make_runtime_folder())
    server.start()
    try:
        pid_file = server.data_folder / "postmaster.pid"
        ready_text = pid_file.read_text()
        pid_file.write_text(re.sub("ready *$", "starting", ready_text.rstrip()))
        assert not server._is_ready()
        become_ready = threading.Timer(0.3, pid_file.write_text, [ready_text])
        become_ready.start()
        server.start()
        assert server._is_ready()
        become_ready.join()
    finally:
        server.stop()


def test_program_that_takes_too_long_is_reported_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pg_slow"
    program.write_text("#!/bin/sh\necho waiting for WAL >&2\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(initdb, "PROGRAM_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(initdb.ProgramFailed) as failure:
        initdb.Programs(tmp_path, user=None).run("pg_slow")
    assert re.fullmatch(r".+ timed out after 0\.5 seconds\nwaiting for WAL", str(failure.value))


def test_error_includes_the_message_of_initdb(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """initdb, which fills the data folder, refuses a folder that is not empty."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "another file").touch()
    with pytest.raises(EmbeddedError, match=r"set DATABASE_URL(.|\n)*exists but is not empty"):
        Postgres(tmp_path / "data", runtime_folder=make_runtime_folder()).start()
    assert caplog.text == ""  # the wheel should not log the message, too
