"""deploy/docker/rolling_restart.sh, with a program in place of Docker that records each command."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from servers.embedded import ROOT
from servers.tests.interrupts import stop_ignoring_sigint
from servers.tests.polling import eventually

#: A program in place of Docker, which writes each command into the file `calls` of its folder.
#: Further files there: `containers` has the ids of a node's running containers, `health` the health
#: of every container, `migrate_exit_code` how the migration ends. While `wait` exists, the command
#: that creates a node again does not end.
DOCKER = """#!/bin/sh
folder=$(dirname "$0")
echo "$*" >> "$folder/calls"
case "$*" in
    *"grep -q"*) exit 1 ;;  # nginx has no old worker
    *"ps -q"*) cat "$folder/containers" ;;
    inspect*) cat "$folder/health" ;;
    *force-recreate*) while [ -e "$folder/wait" ]; do sleep 0.05; done ;;
    *"run --rm migrate"*) exit "$(cat "$folder/migrate_exit_code")" ;;
esac
"""


class Restart:
    """One run of rolling_restart.sh, with a program in place of Docker that records each command.

    The files of `folder` tell that program what to answer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        docker = folder / "docker"
        docker.write_text(DOCKER)
        docker.chmod(0o755)
        (folder / "containers").write_text("abc\n")
        (folder / "health").write_text("healthy")
        (folder / "migrate_exit_code").write_text("0")

    def start(self) -> subprocess.Popen[str]:
        """Start the script, with the program in place of Docker first in PATH."""
        return subprocess.Popen(
            [ROOT / "deploy/docker/rolling_restart.sh", "-f", "one.yml"],
            env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=stop_ignoring_sigint,
        )

    @property
    def calls(self) -> list[str]:
        """The Docker commands that were run so far."""
        return (self.folder / "calls").read_text().splitlines()

    def has_called(self, text: str) -> bool:
        """Return whether a Docker command with this text was run."""
        return (self.folder / "calls").exists() and any(text in call for call in self.calls)


@pytest.fixture
def restart(tmp_path: Path) -> Restart:
    return Restart(tmp_path)


def test_rolling_restart_migrates_before_it_touches_a_node(restart: Restart) -> None:
    process = restart.start()
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert output.splitlines()[-1] == "web-b: back in nginx"
    assert restart.calls[0] == "compose -f one.yml run --rm migrate"
    recreated = [call.split()[-1] for call in restart.calls if "force-recreate" in call]
    assert recreated == ["web-a", "web-b"]


def test_node_whose_container_has_exited_is_started_again(restart: Restart) -> None:
    """A container that has exited is not listed, so the script finds none. It still creates one."""
    (restart.folder / "containers").write_text("")
    process = restart.start()
    eventually(lambda: restart.has_called("force-recreate"), what="the script creates a node again")
    os.killpg(process.pid, signal.SIGTERM)  # or it would wait for the new container to be listed
    process.communicate(timeout=60)
    assert restart.has_called("--force-recreate --scale web-a=1 web-a")


def test_rolling_restart_stops_where_the_migration_fails(restart: Restart) -> None:
    (restart.folder / "migrate_exit_code").write_text("3")
    process = restart.start()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (3, "")
    assert len(restart.calls) == 1  # the migration; no node was touched


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_rolling_restart_names_the_node_that_is_out(
    restart: Restart, stop_signal: signal.Signals
) -> None:
    (restart.folder / "wait").touch()  # while this file exists, the creation of a node does not end
    process = restart.start()
    eventually(lambda: restart.has_called("force-recreate"), what="the script creates a node again")
    os.killpg(process.pid, stop_signal)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + stop_signal
    advice = "still out of nginx; the other node sells. Run this again to put it back"
    assert errors.splitlines()[-1] == f"web-a: {advice}"
