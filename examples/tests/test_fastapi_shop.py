"""A rush on the example shop fastapi_shop.py.

`make test` leaves this test out, because it lets pip install the packages of the shop.
"""

import subprocess
import sys

from servers.embedded import ROOT


def test_unrepaired_fastapi_shop_oversells() -> None:
    """A separate step of CI (make example-shop) tests the repaired shop."""
    completed = subprocess.run(
        [sys.executable, "-m", "examples.targets", "fastapi", "--rush", "--expect", "oversold"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "OVERSOLD" in completed.stdout
