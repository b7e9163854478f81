"""A sample of every strategy and event, played again on real servers."""

import os
import subprocess
import sys

from servers.embedded import ROOT
from tools.site.tests.test_recorded import SHARED_SERVERS


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python module. It starts its servers, because it does not know those of the tests."""
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
    """One command plays some schedules of each world, which is a strategy with its outside events.

    It plays several worlds at a time, because their buyers wait most of the time.
    """
    process = run_module("tools.site.recorder.recorded_worlds", "sample")
    assert process.stdout == "differing from the recording: none\n", process.stderr[-2000:]


def test_slow_machine_does_not_change_a_replay() -> None:
    """On a machine that seems slow, replays agree with the recording if they may use it.

    The program prints whether the moves of each of four replays are those of the recording. The
    second is compared with a changed recording, and the third must do without a recording.
    """
    process = run_module("tools.site.tests.slow_machine")
    assert process.stdout.split() == ["True", "False", "False", "True"], process.stderr[-2000:]
