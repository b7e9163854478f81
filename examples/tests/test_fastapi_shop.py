"""A shop installed from packages, rushed as a stranger would: it oversells.

Not in `make test`: pip installs its packages here.
"""

import subprocess
import sys

from servers.embedded import ROOT


def test_fastapi_shop_oversells_as_it_is() -> None:
    """Repaired it does not: `make example-shop ARGS="fastapi --repaired --rush"`, which CI runs."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.targets", "fastapi", "--rush", "--expect", "oversold"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OVERSOLD" in done.stdout
