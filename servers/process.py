"""A server's process: started in a session of its own, waited for, and stopped within bounds."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from servers.errors import NotReady, with_reason
from servers.signals import uninterrupted

#: Seconds between SIGTERM and SIGKILL.
STOP_TIMEOUT = 5.0
#: Bytes and lines of the log that an error shows.
TAIL_BYTES, TAIL_LINES = 4000, 8


class ServerProcess:
    """One process that can be started and stopped again.

    In a session of its own: Ctrl-C in the terminal does not reach it, and it can be killed with
    everything that it started.

    name  what messages call it
    log   where its output is appended: a path, or an open file
    """

    def __init__(self, name: str, log: Path | IO[bytes]) -> None:
        self.name = name
        self.log = log
        self.log_name = str(log if isinstance(log, Path) else log.name)
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        user: str | int | None = None,
    ) -> int:
        """Start it and return its pid.

        folder       where it works; by default, where this process does
        environment  all of its variables; by default, those of this process
        user         the user that it runs as, if this process is root's
        """
        with uninterrupted(), ExitStack() as opened:
            log = self.log
            self.process = subprocess.Popen(
                [str(word) for word in command],
                cwd=folder,
                env=environment,
                user=user,
                stdin=subprocess.DEVNULL,
                stdout=opened.enter_context(log.open("ab")) if isinstance(log, Path) else log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.process.pid

    def wait_until(
        self, is_ready: Callable[[], object], *, timeout: float, otherwise: str = ""
    ) -> None:
        """Wait until `is_ready`, which may raise while it is not.

        Raises NotReady when the process ends or `timeout` seconds are over, with what `is_ready`
        raised last, the end of the log and `otherwise`, which says what to do.
        """
        deadline = time.monotonic() + timeout
        while True:
            last: Exception | None = None
            try:
                if is_ready():
                    return
            except Exception as error:
                last = error
            ended = self.process is None or self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise NotReady(self._complaint(last, ended, timeout, otherwise)) from last
            time.sleep(0.02)

    def terminate(self) -> None:
        """Ask it to end, and do not wait."""
        if self.process is not None:
            self.process.terminate()

    def stop(self, timeout: float = STOP_TIMEOUT, how: signal.Signals = signal.SIGTERM) -> None:
        """End it by the signal `how`, and after `timeout` seconds its whole session by SIGKILL.
        Nothing happens if it does not run."""
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(max(0.0, timeout))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def leave_running(self) -> None:
        """Let it run on without this object: somebody else ends it by its pid."""
        if self.process is not None:
            self.process.returncode = 0  # or Popen would complain that it still runs
            self.process = None

    def tail(self) -> str:
        """The last lines of its log."""
        try:
            with Path(self.log_name).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(line for line in lines[-TAIL_LINES:] if line.strip())

    def _complaint(
        self, last: Exception | None, ended: bool, timeout: float, otherwise: str
    ) -> str:
        happened = "it ended" if ended else f"no answer in {timeout:g} s"
        reason = f" ({last})" if last is not None else ""
        advice = f", or {otherwise}" if otherwise else ""
        said = f"{self.name} did not start: {happened}{reason}; see {self.log_name}{advice}"
        return f"{said}\n{with_reason(self.tail())}".rstrip()
