"""The shop reproduces a sample of the recorded schedules with outside events, on real servers."""

import os
import subprocess
import sys

from servers.embedded import ROOT
from tools.site.tests.test_recorded import SHARED_SERVERS


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m` with these arguments, without the addresses of the servers of the tests.

    So the module starts its own servers.
    """
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
    """The moves of some schedules of each world are those of the recording.

    A world is a strategy with its stock and its outside events. The command plays several worlds at
    a time, because their buyers wait most of the time.
    """
    process = run_module("tools.site.recorder.recorded_worlds", "sample")
    assert process.stdout == "differing from the recording: none\n", process.stderr[-2000:]


def test_slow_machine_does_not_change_a_replay() -> None:
    """Replays with slow buyers agree with the recording, because they use it.

    slow_machine prints for each of four replays whether its moves are those of the recording. The
    second replay uses a changed recording, and the third uses none, so these two must differ.
    """
    process = run_module("tools.site.tests.slow_machine")
    assert process.stdout.split() == ["True", "False", "False", "True"], process.stderr[-2000:]
