"""python -m tools.lock [--upgrade]: write the lock files from the ranges in requirements*.txt.

Each lock names one version of every package, with the hashes of all its files, for Python 3.11 to
3.13 on Linux and macOS. A version that is locked stays while the ranges allow it; --upgrade takes
the newest. Ends with status 1 where a locked package has no wheel for one of those systems: it
would be compiled there, by whoever runs `make demo`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"

PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = (
    "x86_64-manylinux_2_28",
    "aarch64-manylinux_2_28",
    "aarch64-apple-darwin",
    "x86_64-apple-darwin",
)
#: Ranges, and the lock that bounds theirs. The suite's comes first: the shop's is a part of it, so
#: that what is deployed is what was tested.
LOCKS = (
    ("requirements-dev", None),
    ("requirements", "requirements-dev.lock"),
    ("requirements-tools", None),
)


def compile_lock(name: str, within: str | None, *options: str) -> None:
    """Write `name`.lock from `name`.txt, with no version that `within`, another lock, has not."""
    bounds = ("--constraints", within) if within else ()
    print(f"{name}.txt -> {name}.lock", flush=True)
    run(
        *("pip", "compile", "--quiet", "--universal", "--python-version", PYTHONS[0]),
        *("--generate-hashes", "--no-annotate", "--custom-compile-command", "make lock"),
        *(*bounds, *options, "--output-file", f"{name}.lock", f"{name}.txt"),
    )


def require_wheels(name: str) -> None:
    """Fail unless every package of `name`.lock has a wheel for each Python and system."""
    for python in PYTHONS:
        for system in SYSTEMS:
            with tempfile.TemporaryDirectory() as nowhere:
                run(
                    *("pip", "install", "--quiet", "--dry-run", "--no-build", "--require-hashes"),
                    *("--python-version", python, "--python-platform", system),
                    *("--target", nowhere, "--requirements", f"{name}.lock"),
                    why=f"{name}.lock: no wheel for Python {python} on {system}; give the package "
                    f"a requirement with a marker in {name}.txt, as gevent has",
                )


def run(*arguments: str, why: str = "") -> None:
    """Run uv, whatever its user has configured; end with `why` where it fails."""
    result = subprocess.run([UV, "--no-config", *arguments], cwd=ROOT, check=False)
    if result.returncode:
        sys.exit(why or result.returncode)


if __name__ == "__main__":
    for name, within in LOCKS:
        compile_lock(name, within, *sys.argv[1:])
    for name, within in LOCKS:
        if within is None:
            require_wheels(name)
