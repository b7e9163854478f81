"""A sample of every strategy and event again, on real servers, compared with the recording."""

import os
import subprocess
import sys

import pytest

from servers.embedded import ROOT
from tools.site.tests.test_recorded import SHARED
from tools.site.worlds import WORLDS


@pytest.mark.parametrize("world", WORLDS)
def test_sample_is_played_again_as_recorded(world: str) -> None:
    command = [sys.executable, "-m", "tools.site.recorder.recorded_worlds", "sample", world]
    environment = {name: value for name, value in os.environ.items() if name not in SHARED}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "otherwise than recorded: none\n", done.stderr[-2000:]
