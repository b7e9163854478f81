"""A sample of every strategy and event, played again on real servers."""

import os
import subprocess
import sys

from servers.embedded import ROOT
from tools.site.tests.test_recorded import SHARED_SERVERS


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python on servers that it starts itself."""
    environment = {name: value for name, value in os.environ.items() if name not in SHARED_SERVERS}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_sample_is_played_again_as_recorded() -> None:
    """One command plays all worlds, several at a time, because their buyers mostly wait."""
    process = run_module("tools.site.recorder.recorded_worlds", "sample")
    assert process.stdout == "differing from the recording: none\n", process.stderr[-2000:]


def test_slow_machine_does_not_change_a_replay() -> None:
    """slow_machine.py explains the four lines."""
    process = run_module("tools.site.tests.slow_machine")
    assert process.stdout.split() == ["True", "False", "False", "True"], process.stderr[-2000:]
