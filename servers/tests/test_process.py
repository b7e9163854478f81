"""A server's process, the signals that end a command, and what a refused file means."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import psutil
import pytest

from servers.errors import EmbeddedError, NotReady
from servers.loopback import ask_loopback_directly, runtime_folder
from servers.postgres import Postgres
from servers.process import ServerProcess
from servers.signals import uninterrupted
from servers.tests.proxied import eventually

FULL = "no space is left for the disk: make room there and start again"
STUBBORN = "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN);"


def started(tmp_path: Path, program: str) -> ServerProcess:
    server = ServerProcess("a server", tmp_path / "log")
    server.start([sys.executable, "-uc", program])
    return server


def test_one_that_ignores_sigterm_is_killed_with_what_it_started(tmp_path: Path) -> None:
    child = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    server = started(tmp_path, f"{STUBBORN} {child} print(child.pid); time.sleep(600)")
    server.wait_until(server.tail, timeout=20)
    started_by_it = psutil.Process(int(server.tail()))
    server.stop(0.1)
    assert server.process is None
    eventually(
        lambda: not started_by_it.is_running() or started_by_it.status() == psutil.STATUS_ZOMBIE,
        what="its child has ended too",
    )


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


def test_signals_wait_until_the_block_is_over_and_one_takes_effect() -> None:
    asked_again, done = [], []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's & ignores it
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            with uninterrupted(lambda: asked_again.append("still stopping")):
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
                done.append("stopped")
            done.append("never reached")
        assert (asked_again, done) == (["still stopping"] * 2, ["stopped"])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("known", ["", "example.org", "*"])
def test_this_machine_is_asked_without_a_proxy(known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://proxy.invalid:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, known)
    ask_loopback_directly()
    assert proxy_bypass("127.0.0.1:8000")
    assert proxy_bypass("localhost")
    assert getproxies()["no"].startswith(known)


def test_the_folder_of_sockets_is_short_whatever_tmpdir_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert len(str(runtime_folder())) < 50
