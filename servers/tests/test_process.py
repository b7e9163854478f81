"""A server's process, its port, and the errors about a full disk and an unsafe folder."""

import errno
import os
import re
import subprocess
import sys
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import psutil
import pytest

from servers import embedded
from servers.loopback import ask_loopback_directly, runtime_folder
from servers.postgres import Postgres
from servers.process import ServerProcess
from servers.server_errors import EmbeddedError, NotReady, full_disk_message
from servers.tests.copy_of_project import assert_gone

FULL = "no space is left for the disk: make room there and start again"


def started(tmp_path: Path, program: str) -> ServerProcess:
    server = ServerProcess("a server", tmp_path / "log")
    server.start([sys.executable, "-uc", program])
    return server


def test_process_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN);"
    child = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    server = started(tmp_path, f"{stubborn} {child} print(child.pid); time.sleep(600)")
    server.wait_until(server.tail, timeout=20)
    started_by_it = psutil.Process(int(server.tail()))
    server.stop(0.1)
    assert server.process is None
    assert_gone(started_by_it)


def test_rest_of_a_session_whose_leader_died_is_killed(tmp_path: Path) -> None:
    child = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    program = f"import subprocess, sys, time; {child} print(child.pid); child.wait()"
    server = started(tmp_path, program)
    server.wait_until(server.tail, timeout=20)
    left = psutil.Process(int(server.tail()))
    assert server.process is not None
    assert server.why_ended() == ""
    server.process.kill()
    server.process.wait()
    assert re.fullmatch(r".+ ended \(SIGKILL, .+\); see .+/log", server.why_ended())
    server.stop()
    assert server.why_ended() == ""
    assert_gone(left)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(3)", r".+ ended \(exit code 3\); see .+/log"),
        (
            "import os; print('PANIC: ' + os.strerror(28), flush=True); os.abort()",
            rf".+ ended \(SIGABRT\); see .+/log\n{FULL}",
        ),
    ],
)
def test_server_that_ended_is_named_with_the_reason(
    tmp_path: Path, program: str, message: str
) -> None:
    server = started(tmp_path, program)
    assert server.process is not None
    server.process.wait()
    assert re.fullmatch(message, server.why_ended()), server.why_ended()


@pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="mounts a small disk")
def test_disk_that_is_full_is_known_by_its_folder(tmp_path: Path) -> None:
    small = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(small, capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        assert full_disk_message(tmp_path) == ""
        with suppress(OSError), (tmp_path / "file").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        assert full_disk_message(tmp_path) == FULL.replace("the disk", str(tmp_path))
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def refuse() -> None:
    raise ConnectionRefusedError("refused")


@pytest.mark.parametrize(
    ("program", "timeout", "says"),
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
            FULL,
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here"),
        ),
    ],
)
def test_failed_start_is_reported_with_reason_and_log(
    tmp_path: Path, program: str, timeout: float, says: str
) -> None:
    server = started(tmp_path, program)
    with pytest.raises(NotReady) as refused:
        server.wait_until(refuse, timeout=timeout, advice="use another")
    assert str(refused.value).endswith(says.format(log=tmp_path / "log"))
    server.stop()


@pytest.mark.parametrize("log", ["", f"PANIC:  could not write: {os.strerror(errno.ENOSPC)}\n"])
def test_postgresql_that_does_not_answer_names_a_full_disk(tmp_path: Path, log: str) -> None:
    postgres = Postgres(tmp_path, runtime=tmp_path)
    postgres.log.write_text(log)
    with pytest.raises(EmbeddedError) as refused:
        postgres.sql("SELECT 1")
    assert (str(refused.value) == FULL) == bool(log), refused.value


@pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="mounts a small disk")
def test_full_disk_is_reported_if_initdb_fails(tmp_path: Path) -> None:
    small = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(tmp_path)]
    if subprocess.run(small, capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        with pytest.raises(EmbeddedError) as refused:
            Postgres(tmp_path / "data", runtime=runtime_folder()).start()
        assert str(refused.value).splitlines()[-1] == FULL
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize(
    ("configured", "becomes"),
    [("", "127.0.0.1,localhost"), ("a.org", "a.org,127.0.0.1,localhost"), ("*", "*")],
)
def test_this_machine_is_asked_without_a_proxy(
    configured: str, becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://proxy.invalid:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, configured)
    ask_loopback_directly()
    assert proxy_bypass("127.0.0.1:8000")
    assert proxy_bypass("localhost")
    assert getproxies()["no"] == becomes


def test_folder_of_sockets_is_short_whatever_tmpdir_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert len(str(runtime_folder())) < 50


def test_runtime_folder_that_is_a_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may have put the link into a shared folder, to gain access to our folder."""
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        monkeypatch.setattr("tempfile.tempdir", base)
        folder = Path(base, f"oversold-{os.getuid()}")
        for target in (ours, tmp_path / "missing"):
            folder.symlink_to(target)
            with pytest.raises(EmbeddedError, match="is not a folder: remove it, or set TMPDIR"):
                runtime_folder()
            folder.unlink()
        folder.write_text("a file")
        with pytest.raises(EmbeddedError, match="is not a folder: remove it, or set TMPDIR"):
            runtime_folder()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_runtime_folder_writable_by_others_is_refused(
    mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        monkeypatch.setattr("tempfile.tempdir", base)
        folder = runtime_folder()
        assert folder == Path(base, f"oversold-{os.getuid()}")
        folder.chmod(0o711)  # as root's PostgreSQL needs it
        assert runtime_folder() == folder
        folder.chmod(mode)
        with pytest.raises(EmbeddedError, match="may be written by other users"):
            runtime_folder()


@pytest.mark.parametrize(
    ("names_set", "starts"),
    [
        ({"DATABASE_URL_FILE", "REDIS_URL_FILE"}, False),
        ({"DATABASE_URL_FILE", "REDIS_SENTINELS"}, False),
        ({"DATABASE_URL_FILE"}, True),
        ({"REDIS_URL_FILE"}, True),
    ],
)
def test_only_an_unnamed_server_is_started(
    names_set: set[str], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has neither server. `manage.py migrate` must not start what a URL names."""
    for name in ("DATABASE_URL", "REDIS_URL", "REDIS_SENTINELS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)
    for name in names_set:
        monkeypatch.setenv(name, "/somewhere")

    def attach() -> None:
        raise InterruptedError

    monkeypatch.setattr(embedded, "attach", attach)
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    before = dict(os.environ)
    with pytest.raises(InterruptedError) if starts else nullcontext():
        embedded.provide_urls()
    assert dict(os.environ) == before
