"""A server's process, the way to this machine, and what a refused file means."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import psutil
import pytest

from servers import embedded
from servers.errors import EmbeddedError, NotReady
from servers.loopback import ask_loopback_directly, runtime_folder
from servers.postgres import Postgres
from servers.process import ServerProcess
from servers.tests.copy_of_project import assert_gone

FULL = "no space is left for the disk: make room there and start again"


def started(tmp_path: Path, program: str) -> ServerProcess:
    server = ServerProcess("a server", tmp_path / "log")
    server.start([sys.executable, "-uc", program])
    return server


def test_one_that_ignores_sigterm_is_killed_with_what_it_started(tmp_path: Path) -> None:
    stubborn = "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN);"
    child = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    server = started(tmp_path, f"{stubborn} {child} print(child.pid); time.sleep(600)")
    server.wait_until(server.tail, timeout=20)
    started_by_it = psutil.Process(int(server.tail()))
    server.stop(0.1)
    assert server.process is None
    assert_gone(started_by_it)


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
def test_one_that_does_not_start_is_reported_with_the_reason_and_the_end_of_its_log(
    tmp_path: Path, program: str, timeout: float, says: str
) -> None:
    server = started(tmp_path, program)
    with pytest.raises(NotReady) as refused:
        server.wait_until(refuse, timeout=timeout, otherwise="use another")
    assert str(refused.value).endswith(says.format(log=tmp_path / "log"))
    server.stop()


@pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="mounts a small disk")
def test_a_full_disk_is_said_where_initdb_finds_no_space(tmp_path: Path) -> None:
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
    ("known", "becomes"),
    [("", "127.0.0.1,localhost"), ("a.org", "a.org,127.0.0.1,localhost"), ("*", "*")],
)
def test_this_machine_is_asked_without_a_proxy(
    known: str, becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://proxy.invalid:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, known)
    ask_loopback_directly()
    assert proxy_bypass("127.0.0.1:8000")
    assert proxy_bypass("localhost")
    assert getproxies()["no"] == becomes


def test_the_folder_of_sockets_is_short_whatever_tmpdir_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert len(str(runtime_folder())) < 50


@pytest.mark.parametrize(
    ("named", "starts"),
    [
        ({"DATABASE_URL_FILE", "REDIS_URL_FILE"}, False),
        ({"DATABASE_URL_FILE", "REDIS_SENTINELS"}, False),
        ({"DATABASE_URL_FILE"}, True),
        ({"REDIS_URL_FILE"}, True),
    ],
)
def test_a_server_is_started_only_where_one_of_the_two_is_not_named(
    named: set[str], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has neither server in it: `manage.py migrate` failed there for want of one."""
    for name in ("DATABASE_URL", "REDIS_URL", "REDIS_SENTINELS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)
    for name in named:
        monkeypatch.setenv(name, "/somewhere")

    def attach() -> None:
        raise InterruptedError

    monkeypatch.setattr(embedded, "attach", attach)
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    before = dict(os.environ)
    with pytest.raises(InterruptedError) if starts else nullcontext():
        embedded.provide_urls()
    assert dict(os.environ) == before
