"""`make doctor` with everything, with Python alone, and on other kinds of machines."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import doctor
from servers.tests.copy_of_project import Copy

#: The words of `make doctor`, after those of Python.
DOCTOR = ("-m", "servers.doctor")


def test_ready_machine_is_reported_and_nothing_is_left(copy: Copy) -> None:
    doctor_run = copy.run(
        sys.executable, *DOCTOR, http_proxy="http://127.0.0.1:9", PGSERVICE="nowhere"
    )
    assert (doctor_run.returncode, doctor_run.stderr) == (0, ""), doctor_run.stdout
    assert doctor_run.stdout.endswith("\nREADY: run `make demo`\n")
    for check_name in ("system", "Python", "packages", "disk", "PostgreSQL", "Valkey"):
        assert f"\nok  {check_name}" in f"\n{doctor_run.stdout}"
    assert not (copy.data / "postmaster.pid").exists()


def test_unreachable_external_servers_are_named(copy: Copy) -> None:
    nobody = {"DATABASE_URL": "postgresql://127.0.0.1:9/x", "REDIS_URL": "redis://127.0.0.1:9"}
    doctor_run = copy.run(sys.executable, *DOCTOR, **nobody)
    assert doctor_run.returncode == 1
    assert "NO  PostgreSQL" in doctor_run.stdout
    assert "NO  Valkey or Redis" in doctor_run.stdout


def test_bare_python_gets_the_first_step_as_advice(copy: Copy) -> None:
    doctor_run = copy.run(str(Path(sys.base_prefix) / "bin" / "python3"), *DOCTOR)
    assert (doctor_run.returncode, doctor_run.stderr) == (1, "")
    assert "NO  packages         nothing is installed yet\n" in doctor_run.stdout
    assert doctor_run.stdout.endswith(
        "NOT READY. Do this, then run `make doctor` again:\n  1. make install\n"
    )


def test_server_that_does_not_start_is_reported_with_its_log(copy: Copy) -> None:
    copy.run(sys.executable, *DOCTOR)  # so that the data folder exists
    with (copy.data / "postgresql.conf").open("a") as file:
        file.write("nonsense = 1\n")
    doctor_run = copy.run(sys.executable, *DOCTOR)
    text = (copy.data / "postgresql.conf").read_text()
    (copy.data / "postgresql.conf").write_text(text.replace("nonsense = 1\n", ""))
    assert doctor_run.returncode == 1
    assert "NO  PostgreSQL       PostgreSQL did not start: it ended" in doctor_run.stdout
    assert 'unrecognized configuration parameter "nonsense"' in doctor_run.stdout
    assert "Traceback" not in doctor_run.stdout + doctor_run.stderr


def test_old_python_can_parse_it_and_gets_advice() -> None:
    """Python 3.8 would end with a traceback if it evaluated an annotation like `str | None`."""
    ast.parse(inspect.getsource(doctor), feature_version=(3, 8))
    for name, function in inspect.getmembers(doctor, inspect.isfunction):
        assert all(isinstance(hint, str) for hint in function.__annotations__.values()), name


def test_absent_mariadb_is_named_and_not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servers.mariadb.is_installed", lambda: False)
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    [finding] = doctor.check_other_databases()
    assert finding.todo == ""
    assert "apt-get install --no-install-recommends mariadb-server-core" in finding.message
    assert "make install-mysql" in finding.message


# --- the decisions, for machines that are not this one --------------------------------------------


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
    advice = doctor._missing_wheels_advice(system, processor, libc)
    assert todo in advice
    assert bool(advice) == bool(todo)


@pytest.mark.parametrize(
    ("check", "machine", "says"),
    [
        (doctor.check_system, {"ROOT": Path("/mnt/c/oversold")}, "the file system of WSL"),
        (doctor.check_python, {"OLDEST_PYTHON": (99, 0)}, "install Python 3.11 or newer"),
        (doctor.check_disk_space, {"MIN_FREE_DISK_MB": 2**60}, "free some disk space"),
        (doctor.check_packages, {"_version": lambda name: "?"}, "make clean, then make install"),
    ],
)
def test_missing_parts_of_the_machine_are_named_with_advice(
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[], Iterator[doctor.Diagnosis]],
    machine: dict[str, Any],
    says: str,
) -> None:
    monkeypatch.setattr("platform.release", lambda: "5.15.1-microsoft-standard-WSL2")
    for name, value in machine.items():
        monkeypatch.setattr(doctor, name, value)
    (finding,) = [candidate for candidate in check() if candidate.todo]
    assert says in finding.todo


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"DATABASE_URL_FILE": "/run/secrets/url"}, "PostgreSQL       not checked: DATABASE_URL"),
        ({"DATABASE_URL": "mysql://127.0.0.1/shop"}, "PostgreSQL       not checked: DATABASE_URL"),
        ({"REDIS_SENTINELS": "127.0.0.1:9"}, "Valkey or Redis  not checked: REDIS_URL"),
    ],
)
def test_servers_that_cannot_be_asked_are_not_reported_as_missing(
    copy: Copy, variables: dict[str, str], says: str
) -> None:
    doctor_run = copy.run(sys.executable, *DOCTOR, **variables)
    assert f"ok  {says}" in doctor_run.stdout
    assert doctor_run.returncode == 0
