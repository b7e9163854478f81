"""The processes of the servers that the project starts, and the errors if they cannot start.

Also: a full disk, an unsafe folder for sockets, HTTP proxies, and which servers are started.
"""

import errno
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import psutil
import pytest

from servers import embedded
from servers.loopback import exempt_loopback_from_proxies, make_runtime_folder
from servers.postgres import Postgres
from servers.process import ServerProcess
from servers.server_errors import EmbeddedError, NotReady, advise_on_disk
from servers.tests.copy_of_project import assert_gone

#: The advice on a full disk if the folder is unknown. If the folder is known, `for FOLDER` replaces
#: `on the disk`.
DISK_FULL = "no space is left on the disk: make room there and start again"
#: A statement for the programs of these tests. It starts a child process that only sleeps.
START_CHILD = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"


def start_program(tmp_path: Path, program: str) -> ServerProcess:
    """Start a Python program as a server, whose log is tmp_path / "log"."""
    server = ServerProcess("a server", tmp_path / "log")
    server.start([sys.executable, "-uc", program])
    return server


def test_process_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    """stop() sends SIGTERM, and 0.1 s later SIGKILL to the whole session of the process."""
    ignore_sigterm = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    )
    server = start_program(
        tmp_path, f"{ignore_sigterm}; {START_CHILD}; print(child.pid); time.sleep(600)"
    )
    server.wait_until(server.tail, timeout=20)  # until the log has the child's pid
    child = psutil.Process(int(server.tail()))
    server.stop(0.1)
    assert server.process is None
    assert_gone(child)


def test_stop_kills_the_children_of_a_killed_server(tmp_path: Path) -> None:
    """The server is killed by SIGKILL, but its child still runs. stop() then kills the child."""
    program = f"import subprocess, sys; {START_CHILD}; print(child.pid); child.wait()"
    server = start_program(tmp_path, program)
    # tail() returns the end of the log. The program prints the child's pid there.
    server.wait_until(server.tail, timeout=20)
    child = psutil.Process(int(server.tail()))
    assert server.process is not None
    assert server.why_ended() == ""
    server.process.kill()
    server.process.wait()
    assert re.fullmatch(r".+ ended \(SIGKILL, .+\); see .+/log", server.why_ended())
    server.stop()
    assert server.why_ended() == ""
    assert_gone(child)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(3)", r".+ ended \(exit code 3\); see .+/log"),
        (
            f"import os; print(os.strerror({errno.ENOSPC}), flush=True); os.abort()",
            rf".+ ended \(SIGABRT\); see .+/log\n{DISK_FULL}",
        ),
    ],
)
def test_message_contains_the_reason_why_a_server_ended(
    tmp_path: Path, program: str, message: str
) -> None:
    """The second server printed the system's message for a full disk."""
    server = start_program(tmp_path, program)
    assert server.process is not None
    server.process.wait()
    assert re.fullmatch(message, server.why_ended()), server.why_ended()


@pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="mounts a small disk")
def test_advice_on_a_full_disk_contains_the_folder(tmp_path: Path) -> None:
    """Without a full disk there is no advice."""
    with small_disk(tmp_path, "1m"):
        assert advise_on_disk(tmp_path) == ""
        with suppress(OSError), (tmp_path / "file").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        assert advise_on_disk(tmp_path) == DISK_FULL.replace("on the disk", f"for {tmp_path}")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a disk of this size at the folder until the block ends. Skip the test if that fails."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this process may not mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def refuse_connection() -> None:
    """Raise the error of a server that does not listen."""
    raise ConnectionRefusedError("refused")


@pytest.mark.parametrize(
    ("program", "timeout", "end_of_message"),
    [
        (
            "print('no such option'); raise SystemExit(3)",
            20,
            "did not start: it ended (refused); see {log}, or use another\nno such option",
        ),
        ("import time; time.sleep(600)", 0.1, "in 0.1 s (refused); see {log}, or use another"),
        pytest.param(
            "open('/dev/full', 'wb', 0).write(b'x')",
            20,
            DISK_FULL,
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here"),
        ),
    ],
)
def test_failed_start_is_reported_with_reason_and_log(
    tmp_path: Path, program: str, timeout: float, end_of_message: str
) -> None:
    """The servers end at once, are not ready in time, or meet a full disk."""
    server = start_program(tmp_path, program)
    with pytest.raises(NotReady) as failure:
        server.wait_until(refuse_connection, timeout=timeout, advice="use another")
    assert str(failure.value).endswith(end_of_message.format(log=tmp_path / "log"))
    server.stop()


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("", r"PostgreSQL does not answer .*"),
        (f"PANIC:  could not write: {os.strerror(errno.ENOSPC)}\n", DISK_FULL),
    ],
)
def test_error_of_silent_postgresql_says_that_the_disk_is_full(
    tmp_path: Path, log: str, message: str
) -> None:
    """If the log says that the disk was full, the error says this instead of `does not answer`."""
    postgres = Postgres(tmp_path, runtime_folder=tmp_path)
    postgres.log.write_text(log)
    with pytest.raises(EmbeddedError, match=f"^{message}$"):
        postgres.run_sql("SELECT 1")


@pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="mounts a small disk")
def test_full_disk_is_reported_if_initdb_fails(tmp_path: Path) -> None:
    """The disk of 24 MB is too small for the data folder."""
    with small_disk(tmp_path, "24m"):
        with pytest.raises(EmbeddedError) as failure:
            Postgres(tmp_path / "data", runtime_folder=make_runtime_folder()).start()
        assert str(failure.value).splitlines()[-1] == DISK_FULL


@pytest.mark.parametrize(
    ("no_proxy", "expected_no_proxy"),
    [("", "127.0.0.1,localhost"), ("a.org", "a.org,127.0.0.1,localhost"), ("*", "*")],
)
def test_requests_to_this_machine_use_no_proxy(
    no_proxy: str, expected_no_proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project adds this machine to the user's list of hosts without a proxy.

    `*` means that no host uses a proxy.
    """
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://proxy.invalid:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, no_proxy)
    exempt_loopback_from_proxies()
    assert proxy_bypass("127.0.0.1:8000")
    assert proxy_bypass("localhost")
    assert getproxies()["no"] == expected_no_proxy


def test_runtime_folder_has_a_short_path_despite_a_long_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a socket in this folder may have only about 100 bytes."""
    deep_folder = tmp_path / ("d" * 90)
    deep_folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep_folder))
    assert len(str(make_runtime_folder())) < 50


def test_runtime_folder_that_is_a_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared folder, another user may have made the link to gain access to our files."""
    our_folder = tmp_path / "ours"
    our_folder.mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        monkeypatch.setattr("tempfile.tempdir", base)
        folder = Path(base, f"oversold-{os.getuid()}")
        for target in (our_folder, tmp_path / "missing"):
            folder.symlink_to(target)
            with pytest.raises(EmbeddedError, match="is not a folder: remove it, or set TMPDIR"):
                make_runtime_folder()
            folder.unlink()
        folder.write_text("a file")
        with pytest.raises(EmbeddedError, match="is not a folder: remove it, or set TMPDIR"):
            make_runtime_folder()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_runtime_folder_writable_by_others_is_refused(
    mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        monkeypatch.setattr("tempfile.tempdir", base)
        folder = make_runtime_folder()
        assert folder == Path(base, f"oversold-{os.getuid()}")
        folder.chmod(0o711)  # allowed, because root runs PostgreSQL as another user
        assert make_runtime_folder() == folder
        folder.chmod(mode)
        with pytest.raises(EmbeddedError, match="may be written by other users"):
            make_runtime_folder()


@pytest.mark.parametrize(
    ("variables", "starts_servers"),
    [
        ({"DATABASE_URL_FILE", "REDIS_URL_FILE"}, False),
        ({"DATABASE_URL_FILE", "REDIS_SENTINELS"}, False),
        ({"DATABASE_URL_FILE"}, True),
        ({"REDIS_URL_FILE"}, True),
    ],
)
def test_servers_are_started_only_if_a_url_is_unset(
    variables: set[str], starts_servers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, `manage.py migrate` uses external servers and must not start others.

    Servers are external if the variables of both PostgreSQL and Redis are set.
    """
    for name in ("DATABASE_URL", "REDIS_URL", "REDIS_SENTINELS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)
    for name in variables:
        monkeypatch.setenv(name, "/somewhere")

    def raise_instead_of_starting() -> None:
        """Raise an error that provide_urls() does not catch, instead of starting the servers."""
        raise InterruptedError

    monkeypatch.setattr(embedded, "attach", raise_instead_of_starting)
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    environment = dict(os.environ)
    expected_error = pytest.raises(InterruptedError) if starts_servers else nullcontext()
    with expected_error:
        embedded.provide_urls()
    assert dict(os.environ) == environment
