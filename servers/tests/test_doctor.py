"""make doctor: with everything, with nothing but Python, and on machines that are not this one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from servers import doctor
from servers.embedded import ROOT
from servers.tests.copy_of_project import Copy, assert_gone


@pytest.fixture(scope="module")
def copy() -> Iterator[Copy]:
    with tempfile.TemporaryDirectory(prefix="oversold-") as name:
        temporary = Path(name) / "t"
        temporary.mkdir()
        copy = Copy(Path(name) / "copy", temporary=temporary)
        shutil.copytree(ROOT / "tools/requirements", copy.root / "tools/requirements")
        try:
            yield copy
        finally:
            copy.stop_whatever_runs()


def ask(copy: Copy, python: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "servers.doctor"],
        cwd=copy.root,
        env={**copy.environment, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_where_all_is_there_it_says_ready_and_leaves_nothing(copy: Copy) -> None:
    began = time.monotonic()
    asked = ask(copy, sys.executable, http_proxy="http://127.0.0.1:9", PGSERVICE="nowhere")
    assert (asked.returncode, asked.stderr) == (0, ""), asked.stdout
    assert time.monotonic() - began < 20
    assert asked.stdout.endswith("\nREADY: make demo\n")
    for found in ("system", "Python", "packages", "disk", "cores", "PostgreSQL", "Valkey", "proxy"):
        assert f"\nok  {found}" in f"\n{asked.stdout}"
    assert not (copy.data / "postmaster.pid").exists()


def test_servers_of_ones_own_that_do_not_answer_are_named(copy: Copy) -> None:
    nobody = {"DATABASE_URL": "postgresql://127.0.0.1:9/x", "REDIS_URL": "redis://127.0.0.1:9"}
    asked = ask(copy, sys.executable, **nobody)
    assert asked.returncode == 1
    assert "NO  PostgreSQL" in asked.stdout
    assert "NO  Valkey or Redis" in asked.stdout


def test_with_nothing_but_python_it_says_what_to_do_first(copy: Copy) -> None:
    asked = ask(copy, str(Path(sys.base_prefix) / "bin" / "python3"))
    assert (asked.returncode, asked.stderr) == (1, "")
    assert "NO  packages         nothing is installed yet\n" in asked.stdout
    assert asked.stdout.endswith("NOT READY. Do this, then make doctor again:\n  1. make install\n")


def test_a_server_that_does_not_start_is_shown_with_its_log(copy: Copy) -> None:
    with (copy.data / "postgresql.conf").open("a") as file:
        file.write("nonsense = 1\n")
    asked = ask(copy, sys.executable)
    text = (copy.data / "postgresql.conf").read_text()
    (copy.data / "postgresql.conf").write_text(text.replace("nonsense = 1\n", ""))
    assert asked.returncode == 1
    assert "NO  PostgreSQL       PostgreSQL did not start: it ended" in asked.stdout
    assert 'unrecognized configuration parameter "nonsense"' in asked.stdout
    assert "Traceback" not in asked.stdout + asked.stderr
    assert_gone()


# --- the decisions, for machines that are not this one --------------------------------------------


class Disk(NamedTuple):
    free: int


@pytest.mark.parametrize(
    ("system", "processor", "libc", "todo"),
    [
        ("Linux", "x86_64", "glibc2.36", ""),
        ("Linux", "aarch64", "glibc2.31", ""),
        ("Darwin", "arm64", "", ""),
        ("Linux", "x86_64", "", "use a Linux with glibc, not musl"),
        ("Linux", "riscv64", "glibc2.36", "servers of your own"),
        ("Windows", "amd64", "", "use WSL2"),
    ],
)
def test_a_system_without_wheels_is_pointed_to_one_that_has_them(
    system: str, processor: str, libc: str, todo: str
) -> None:
    said = doctor._no_wheels(system, processor, libc)
    assert todo in said
    assert bool(said) == bool(todo)


def patched(patch: pytest.MonkeyPatch, **values: Any) -> None:
    for name, value in values.items():
        patch.setattr(doctor, name, value)


def test_windows_own_file_system_is_refused_in_wsl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "5.15.1-microsoft-standard-WSL2")
    assert "in WSL" in next(doctor.machine()).says
    patched(monkeypatch, ROOT=Path("/mnt/c/oversold"))
    (_, found) = doctor.machine()
    assert "move the checkout into WSL's own file system" in found.todo


def test_an_old_python_is_refused_and_a_new_one_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, OLDEST=(99, 0))
    assert "install Python 3.11 or newer" in next(doctor.python_itself()).todo
    patched(monkeypatch, OLDEST=(3, 0), NEWEST=(3, 1))
    found = next(doctor.python_itself())
    assert (found.todo, found.note) == ("", True)


def test_too_little_room_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: Disk(free=5))
    patched(monkeypatch, _memory=lambda: 5)
    disk, memory, _ = doctor.room()
    assert disk.todo == "free some disk space: 700 MB are needed"
    assert memory.todo == "free some memory: 500 MB are needed"


def test_taken_ports_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, _is_free=lambda port: port != 8000)
    (found,) = doctor.ports()
    assert (found.says, found.todo) == ("taken: 8000 (the page); make serve takes others", "")


def test_missing_packages_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, _version=lambda name: None if name == "django" else "?")
    (found,) = doctor.installed()
    assert found.todo == "make clean, then make install"


@pytest.mark.parametrize(("code", "said"), [(0, "there, for"), (1, "not there; only for")])
def test_a_docker_without_compose_is_not_taken_for_one_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, said: str
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$1" = compose ] && exit {code}\nexit 0\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = [each for each in doctor.optional() if each.name == "docker compose"]
    assert finding.says.startswith(said)
    assert finding.note == bool(code)
