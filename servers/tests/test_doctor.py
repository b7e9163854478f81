"""Tests of `make doctor`, which finds out whether this machine has what the project needs.

They run it in and outside of a virtual environment, and with simulated properties of the machine.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import doctor, embedded
from servers.server_errors import EmbeddedError
from servers.tests.copy_of_project import ProjectCopy

#: The arguments with which Python runs `make doctor`.
DOCTOR = ("-m", "servers.doctor")


def test_ready_machine_is_reported_and_no_server_keeps_running(project: ProjectCopy) -> None:
    """This also holds if the user has set variables for a proxy and for another PostgreSQL."""
    doctor_run = project.run(
        sys.executable, *DOCTOR, http_proxy="http://127.0.0.1:9", PGSERVICE="nowhere"
    )
    assert (doctor_run.returncode, doctor_run.stderr) == (0, ""), doctor_run.stdout
    assert doctor_run.stdout.endswith("\nREADY: run `make demo`\n")
    for check_name in ("system", "Python", "packages", "disk", "PostgreSQL", "Valkey"):
        assert f"\nok  {check_name}" in f"\n{doctor_run.stdout}"
    assert not (project.data / "postmaster.pid").exists()


def test_unreachable_external_servers_are_reported(project: ProjectCopy) -> None:
    urls = {"DATABASE_URL": "postgresql://127.0.0.1:9/x", "REDIS_URL": "redis://127.0.0.1:9"}
    doctor_run = project.run(sys.executable, *DOCTOR, **urls)
    assert doctor_run.returncode == 1
    assert "NO  PostgreSQL" in doctor_run.stdout
    assert "NO  Valkey or Redis" in doctor_run.stdout


def test_doctor_outside_a_venv_advises_make_install(project: ProjectCopy) -> None:
    """The doctor runs outside a virtual environment, and the project has no .venv."""
    doctor_run = project.run(str(Path(sys.base_prefix) / "bin" / "python3"), *DOCTOR)
    assert (doctor_run.returncode, doctor_run.stderr) == (1, "")
    assert "NO  packages         nothing is installed yet\n" in doctor_run.stdout
    assert doctor_run.stdout.endswith(
        "NOT READY. Do this, then run `make doctor` again:\n  1. make install\n"
    )


def test_server_that_does_not_start_is_reported_with_its_log(project: ProjectCopy) -> None:
    """The configuration of PostgreSQL contains an unknown parameter."""
    project.run(sys.executable, *DOCTOR)  # so that the data folder exists
    configuration = project.data / "postgresql.conf"
    text = configuration.read_text()
    configuration.write_text(text + "nonsense = 1\n")
    doctor_run = project.run(sys.executable, *DOCTOR)
    configuration.write_text(text)
    assert doctor_run.returncode == 1
    assert "NO  servers          PostgreSQL did not start: it ended" in doctor_run.stdout
    assert 'unrecognized configuration parameter "nonsense"' in doctor_run.stdout
    assert "Traceback" not in doctor_run.stdout + doctor_run.stderr


def test_valkey_that_does_not_start_is_not_called_postgresql(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line of the report is named `servers`, not `PostgreSQL`."""

    def fail() -> None:
        raise EmbeddedError("Valkey did not start: no answer in 20 s")

    monkeypatch.setattr(embedded, "provide_urls", fail)
    [diagnosis] = doctor.check_servers()
    assert diagnosis.name == "servers"
    assert diagnosis.message == "Valkey did not start: no answer in 20 s"


def test_old_python_can_import_the_doctor() -> None:
    """Python 3.8 can parse the doctor, and evaluates none of its annotations.

    An annotation like `str | None` would be an error there. In this Python they are all strings.
    """
    ast.parse(inspect.getsource(doctor), feature_version=(3, 8))
    for name, function in inspect.getmembers(doctor, inspect.isfunction):
        assert all(isinstance(hint, str) for hint in function.__annotations__.values()), name


def test_missing_mariadb_is_not_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB is optional, so `todo` is empty. The message says how to install it."""
    monkeypatch.setattr("servers.mariadb.is_installed", lambda: False)
    monkeypatch.setattr(doctor, "_read_installed_version", lambda name: None)
    [diagnosis] = doctor.check_other_databases()
    assert diagnosis.todo == ""
    assert "apt-get install --no-install-recommends mariadb-server-core" in diagnosis.message
    assert "make install-mysql" in diagnosis.message


# --- machines of other kinds than this one --------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "processor", "libc", "todo"),
    [
        ("Linux", "x86_64", "glibc2.36", ""),
        ("Darwin", "arm64", "", ""),
        ("Linux", "x86_64", "", "use a Linux with glibc, not musl"),
        ("Linux", "riscv64", "glibc2.36", "servers of your own"),
        ("Windows", "amd64", "", "use WSL2"),
    ],
)
def test_unsupported_system_gets_advice(system: str, processor: str, libc: str, todo: str) -> None:
    """Only a system for which PostgreSQL and Valkey have wheels gets no advice."""
    advice = doctor._missing_wheels_advice(system, processor, libc)
    assert todo in advice
    assert bool(advice) == bool(todo)


@pytest.mark.parametrize(
    ("check", "replacements", "advice"),
    [
        (doctor.check_system, {"ROOT": Path("/mnt/c/oversold")}, "the file system of WSL"),
        (doctor.check_python, {"OLDEST_PYTHON": (99, 0)}, "install Python 3.11 or newer"),
        (doctor.check_disk_space, {"MIN_FREE_DISK_MB": 2**60}, "free some disk space"),
        (
            doctor.check_packages,
            {"_read_installed_version": lambda name: "?"},
            "make clean, then make install",
        ),
    ],
)
def test_missing_parts_of_the_machine_are_reported_with_advice(
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[], Iterator[doctor.Diagnosis]],
    replacements: dict[str, Any],
    advice: str,
) -> None:
    """Each case replaces an object of the doctor's module. So the machine seems to lack something.

    The kernel seems to be that of WSL, which matters only in the first case.
    """
    monkeypatch.setattr("platform.release", lambda: "5.15.1-microsoft-standard-WSL2")
    for name, replacement in replacements.items():
        monkeypatch.setattr(doctor, name, replacement)
    [diagnosis] = [diagnosis for diagnosis in check() if diagnosis.todo]
    assert advice in diagnosis.todo


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"DATABASE_URL_FILE": "/run/secrets/url"}, "PostgreSQL       not checked: DATABASE_URL"),
        ({"DATABASE_URL": "mysql://127.0.0.1/shop"}, "PostgreSQL       not checked: DATABASE_URL"),
        ({"REDIS_SENTINELS": "127.0.0.1:9"}, "Valkey or Redis  not checked: REDIS_URL"),
    ],
)
def test_servers_that_are_not_checked_are_not_reported_as_missing(
    project: ProjectCopy, variables: dict[str, str], line: str
) -> None:
    """A server is not checked if its address is in another variable, or if it is no PostgreSQL."""
    doctor_run = project.run(sys.executable, *DOCTOR, **variables)
    assert f"ok  {line}" in doctor_run.stdout
    assert doctor_run.returncode == 0
