"""One application server, as a process of its own, and next to it the consumer of its promises."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

import psutil

from loadtest.stack.client import Shop
from servers import embedded
from servers.embedded import ROOT
from servers.loopback import free_port
from servers.process import STOP_TIMEOUT, ServerProcess

#: Seconds for a node to answer after its start.
START_TIMEOUT = 30.0


class StackError(RuntimeError):
    """A run cannot be made as it was asked for. The message says what to do, or names a log."""


def inherited() -> dict[str, str]:
    """This process's environment for those that it starts in ROOT.

    Without the user's own Locust options, and without PYTHONSAFEPATH, which would hide our packages
    from `python -m`. LOCUST_ALLOWED_HOSTS is of this project, not Locust's.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name == "LOCUST_ALLOWED_HOSTS"
        or not (name.startswith("LOCUST_") or name == "PYTHONSAFEPATH")
    }


def manage(
    *words: str, environment: Mapping[str, str], log: IO[bytes], timeout: float | None = None
) -> str:
    """Run `manage.py` with these words. Returns what it printed, which the log has too. Raises
    StackError where it fails, or takes more than `timeout` seconds."""
    try:
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"manage.py {words[0]} took more than {timeout:g} s") from error
    log.write(done.stdout)
    log.flush()
    if done.returncode:
        raise StackError(f"manage.py {words[0]} failed; see {log.name}")
    return done.stdout.decode(errors="replace")


def family(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it. Raises psutil.NoSuchProcess."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


class Node:
    """A gunicorn master with its workers, in a session of its own.

    So the terminal's Ctrl-C does not reach it, and its process group can be killed as a whole.

    server   its gunicorn
    settler  its consumer, which writes promised orders, once there is one
    """

    def __init__(
        self, name: str, *, environment: dict[str, str], log: IO[bytes], port: int = 0
    ) -> None:
        self.name = name
        self.port = free_port(port)
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = environment
        self.server = ServerProcess(f"node {name}", log)
        self.settler = ServerProcess(f"consumer {name}", log)
        self._settles = False

    def command(self) -> list[str]:
        """The command that is started."""
        return [
            *(sys.executable, "-m", "gunicorn"),
            *("-c", "python:shop.gunicorn_conf"),
            *("--bind", f"127.0.0.1:{self.port}"),
        ]

    def start(self) -> None:
        pid = self.server.start(self.command(), folder=ROOT, environment=self.environment)
        embedded.adopt(pid)
        if self._settles:
            self._start_settler()

    def settle(self) -> None:
        """Run a consumer next to it from now on, unless it does: `manage.py settle`."""
        self._settles = True
        if self.settler.process is None:
            self._start_settler()

    def stop_settling(self) -> None:
        """SIGKILL of its consumer. What it has read and not settled is another one's to take over;
        `settle` starts it again."""
        self.settler.stop(how=signal.SIGKILL)

    def _start_settler(self) -> None:
        command = [sys.executable, "manage.py", "settle"]
        environment = {**self.environment, "SHOP_DB_POOL": "1"}  # of the consumer's own thread
        embedded.adopt(self.settler.start(command, folder=ROOT, environment=environment))

    def wait_until_ready(self, shop: Shop) -> None:
        """Wait until /readyz is good. Raises NotReady."""
        self.server.wait_until(shop.ready, timeout=START_TIMEOUT)

    def terminate(self) -> None:
        """Ask it to end, and do not wait."""
        self.server.terminate()
        self.settler.terminate()

    def kill(self) -> None:
        """SIGKILL of all its processes, as if the machine had failed. `start` starts it again."""
        for server in (self.server, self.settler):
            if server.process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(server.process.pid, signal.SIGKILL)
                server.process.wait()

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """End it by SIGTERM, and after `timeout` seconds its whole group by SIGKILL."""
        self.settler.terminate()
        self.server.stop(timeout)
        self.settler.stop(timeout)
