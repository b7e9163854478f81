"""ZooKeeper starts in any working directory and with any locale."""

import subprocess
import sys
from pathlib import Path

import pytest

from servers import zookeeper
from servers.embedded import ROOT
from servers.loopback import make_runtime_folder

#: A program that starts and stops a ZooKeeper. Its arguments: the folder for its data, and the log.
START_PROGRAM = """
import sys, tempfile
from pathlib import Path
from servers.zookeeper import ZooKeeper

with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder, open(sys.argv[2], "wb") as log:
    server = ZooKeeper(Path(folder), log=log)
    server.start()
    try:
        server.wait_until_ready()
    finally:
        server.stop()
"""


@pytest.mark.skipif(not zookeeper.is_installed(), reason=zookeeper.MISSING)
def test_zookeeper_is_started_from_a_non_ascii_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under LC_ALL=C Java fails in a working directory with `ü`. So start() uses another one."""
    working_directory = tmp_path / "ü"
    working_directory.mkdir()
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [
        sys.executable,
        "-c",
        START_PROGRAM,
        str(make_runtime_folder()),
        str(tmp_path / "log"),
    ]
    process = subprocess.run(
        command, cwd=working_directory, capture_output=True, text=True, timeout=90
    )
    assert process.returncode == 0, process.stderr
