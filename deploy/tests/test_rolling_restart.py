"""deploy/docker/rolling_restart.sh restarts one node after the other, here without Docker.

A node is a web server of the shop, `web-a` or `web-b`. While a node is restarted, nginx sends it no
requests. A script replaces Docker.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from servers.embedded import ROOT
from servers.tests.interrupts import stop_ignoring_sigint
from servers.tests.polling import eventually

#: A script that replaces Docker. It appends each command to the file `calls` of its folder. The
#: output of the commands is in further files of the folder: `containers` has the ids of a node's
#: running containers, `health` the health of every container, and `migrate_exit_code` the exit code
#: of the migration. While the file `wait` exists, the command that creates a node's container again
#: (`up --force-recreate`) does not end.
DOCKER_STUB = """#!/bin/sh
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
    """A run of rolling_restart.sh with DOCKER_STUB in place of Docker.

    folder  the folder of DOCKER_STUB, with the files that it reads and writes
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        docker = folder / "docker"
        docker.write_text(DOCKER_STUB)
        docker.chmod(0o755)
        (folder / "containers").write_text("abc\n")
        (folder / "health").write_text("healthy")
        (folder / "migrate_exit_code").write_text("0")

    def start(self) -> subprocess.Popen[str]:
        """Start rolling_restart.sh. In its PATH, DOCKER_STUB comes before Docker."""
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
        """The arguments of each Docker command so far."""
        return (self.folder / "calls").read_text().splitlines()

    def has_called(self, text: str) -> bool:
        """Return whether the script has called Docker with arguments that contain this text."""
        return (self.folder / "calls").exists() and any(text in call for call in self.calls)


@pytest.fixture
def restart(tmp_path: Path) -> Restart:
    """Return a run that has not started. By default, the stub's containers are healthy."""
    return Restart(tmp_path)


def test_rolling_restart_migrates_before_it_touches_a_node(restart: Restart) -> None:
    """The first command is the migration. Then the container of each node is created again."""
    process = restart.start()
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert output.splitlines()[-1] == "web-b: back in nginx"
    assert restart.calls[0] == "compose -f one.yml run --rm migrate"
    recreated = [call.split()[-1] for call in restart.calls if "force-recreate" in call]
    assert recreated == ["web-a", "web-b"]


def test_node_whose_container_has_exited_is_started_again(restart: Restart) -> None:
    """The script creates a container for a node that has no running container.

    Docker does not list a container that has exited.
    """
    (restart.folder / "containers").write_text("")
    process = restart.start()
    eventually(lambda: restart.has_called("force-recreate"), what="the script creates a node again")
    # Without the signal, the script would wait until Docker lists the new container.
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert restart.has_called("--force-recreate --scale web-a=1 web-a")


def test_rolling_restart_stops_if_the_migration_fails(restart: Restart) -> None:
    """The script ends with the exit code of the migration, and restarts no node."""
    (restart.folder / "migrate_exit_code").write_text("3")
    process = restart.start()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (3, "")
    assert len(restart.calls) == 1  # the migration


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_rolling_restart_names_the_node_that_is_out(
    restart: Restart, stop_signal: signal.Signals
) -> None:
    """The script is interrupted while the container of web-a is created again.

    nginx then sends no requests to web-a. The script reports this, and how to repair it.
    """
    (restart.folder / "wait").touch()  # makes the creation of a container wait
    process = restart.start()
    eventually(lambda: restart.has_called("force-recreate"), what="the script creates a node again")
    os.killpg(process.pid, stop_signal)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + stop_signal
    advice = "still out of nginx; the other node sells. Run this again to put it back"
    assert errors.splitlines()[-1] == f"web-a: {advice}"
