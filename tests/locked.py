"""Reads requirements*.txt and the lock files made from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent

#: The ranges by the name of the lock that is made from them.
LOCKS = {
    "requirements.lock": "requirements.txt",
    "requirements-dev.lock": "requirements-dev.txt",
    "requirements-tools.lock": "requirements-tools.txt",
}


def requirements(text: str) -> list[Requirement]:
    """Every requirement of a requirements file, without comments, options, hashes."""
    lines = (line.split("#")[0].split("\\")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


def locked(lock: str) -> list[Requirement]:
    return requirements((ROOT / lock).read_text())


def blocks(text: str) -> dict[str, list[str]]:
    """The lines of each entry of a lock, by the entry's first line."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line and not line.startswith(("#", " ")):
            name = line
            found[name] = []
        elif line.startswith(" "):
            found[name].append(line.strip())
    return found


def version(requirement: Requirement) -> str:
    """The one version of a locked requirement."""
    (only,) = requirement.specifier
    assert only.operator == "==", f"{requirement} is not locked to one version"
    return only.version


def unmet(ranges: Sequence[Requirement], lock: Sequence[Requirement]) -> list[str]:
    """The requirements that no entry of the lock meets, each with what the lock has instead."""
    missing = []
    for wanted in ranges:
        name = canonicalize_name(wanted.name)
        versions = [version(entry) for entry in lock if canonicalize_name(entry.name) == name]
        if not any(wanted.specifier.contains(each) for each in versions):
            missing.append(f"{wanted}: locked is {', '.join(versions) or 'nothing'}; run make lock")
    return missing
