"""The tools of .venv-tools, for the tests that run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.locked import ROOT

TOOLS = Path(f"{sys.prefix}-tools")


def tool(name: str) -> Path:
    """A program of .venv-tools; without it the test is skipped, and fails in CI."""
    program = TOOLS / "bin" / name
    if not program.exists():
        why = f"{program} is missing: make hooks (or audit, sbom, lock) installs it"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    return program


def make(*arguments: str) -> str:
    """What `make --dry-run` prints, whatever the make that began this test run was given."""
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", *arguments],
        cwd=ROOT,
        env={name: value for name, value in environment.items() if name != "MFLAGS"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def run_tool(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """python -m `module` with the packages of .venv-tools."""
    return subprocess.run(
        [tool("python"), "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "AUDIT_REQUIRED": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
