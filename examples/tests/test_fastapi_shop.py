"""A shop installed from packages, rushed as a stranger would: it oversells, and repaired not.

Not in `make test`: pip installs its packages here.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from servers.embedded import ROOT


@pytest.mark.parametrize(
    ("repaired", "verdict"),
    [([], "oversold"), (["--repaired"], "exact")],
    ids=["as-is", "repaired"],
)
def test_the_fastapi_shop_oversells_until_its_line_is_repaired(
    repaired: list[str], verdict: str
) -> None:
    command = ["-m", "examples.targets", "fastapi", *repaired, "--rush", "--expect", verdict]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"oversold": "OVERSOLD", "exact": "found in none of 10 rushes"}[verdict] in done.stdout
