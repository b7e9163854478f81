"""A server's process: start it, wait until it is ready, and stop it within a time limit."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from servers.server_errors import NotReady, add_disk_advice, advise_on_log
from servers.signals import uninterrupted

#: Time from the first signal to SIGKILL.
STOP_TIMEOUT_SECONDS = 5.0
#: Interval at which wait_until() checks whether the process is ready.
POLL_INTERVAL_SECONDS = 0.02
#: Limits on the end of the log that an error shows.
TAIL_BYTES = 4000
TAIL_LINES = 8


class ServerProcess:
    """A process that can be started and stopped repeatedly.

    It has its own session, so that the terminal's Ctrl-C does not reach it. A signal to the session
    also ends the processes that it started.

    name  its name in messages
    log   the file to which its output is appended: a path, or an open file
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
        """Start the process and return its pid.

        folder       the working directory of the new process; by default the current one
        environment  its complete environment; by default a copy of the current one
        user         the user that it runs as; only root may choose one
        """
        with uninterrupted(), ExitStack() as open_files:
            log = self.log
            if isinstance(log, Path):
                log = open_files.enter_context(log.open("ab"))
            self.process = subprocess.Popen(
                [str(word) for word in command],
                cwd=folder,
                env=environment,
                user=user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.process.pid

    def wait_until(
        self, is_ready: Callable[[], object], *, timeout: float, advice: str = ""
    ) -> None:
        """Wait until `is_ready()` is true. A call that raises counts as false.

        Raises NotReady if the process ends or is not ready within `timeout` seconds. The message
        has the `advice`, the end of the log, and the exception of the last call of `is_ready`, if
        that call raised one.
        """
        deadline = time.monotonic() + timeout
        while True:
            last_error: Exception | None = None
            try:
                if is_ready():
                    return
            except Exception as error:
                last_error = error
            has_ended = self.process is None or self.process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                raise self._make_error(last_error, has_ended, timeout, advice) from last_error
            time.sleep(POLL_INTERVAL_SECONDS)

    def terminate(self) -> None:
        """Send SIGTERM to the process without waiting for it."""
        if self.process is not None:
            self.process.terminate()

    def stop(
        self, timeout: float = STOP_TIMEOUT_SECONDS, first_signal: signal.Signals = signal.SIGTERM
    ) -> None:
        """Send the first signal. After `timeout` seconds, kill the whole session of the process.

        A process that ends in time is not killed. If the process had ended by itself, the rest of
        its session is killed. Nothing happens if it was stopped or never started.
        """
        if self.process is None:
            return
        pid = self.process.pid
        # Kill the rest of the session if the process has ended by itself. If a process has this pid
        # now, the session has ended, too, and the system has reused the pid.
        if self.process.poll() is not None and not _process_exists(pid):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.process.send_signal(first_signal)
        try:
            self.process.wait(max(0.0, timeout))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def leave_running(self) -> None:
        """Forget the process without ending it. Another process may end it by its pid."""
        if self.process is not None:
            self.process.returncode = 0  # keeps Popen from warning that the process still runs
            self.process = None

    def why_ended(self) -> str:
        """Return a message that says how the process ended by itself.

        The message is empty while the process runs, and after stop().
        """
        if self.process is None or self.process.poll() is None:
            return ""
        return describe_end(self.name, self.process.returncode, Path(self.log_name))

    def tail(self) -> str:
        """Return the last lines of the process's log."""
        return read_tail(Path(self.log_name))

    def _make_error(
        self, last_error: Exception | None, has_ended: bool, timeout: float, advice: str
    ) -> NotReady:
        """Return the error that wait_until() raises, with the cause, the log and the advice."""
        problem = f"no answer in {timeout:g} s"
        if has_ended:
            problem = "it ended"
        if last_error is not None:
            problem += f" ({last_error})"
        details = f"; see {self.log_name}"
        if advice:
            details += f", or {advice}"
        details += f"\n{add_disk_advice(self.tail())}"
        return NotReady(f"{self.name} did not start: {problem}", details.rstrip())


def read_tail(log: Path) -> str:
    """Return the last lines of a log; an empty text if it cannot be read."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines[-TAIL_LINES:] if line.strip())


def describe_end(name: str, exit_code: int | None, log: Path) -> str:
    """Return a message that says how a server ended by itself, and where its log is.

    exit_code  the value of Popen.returncode; None if it is unknown
    """
    cause = ""
    if exit_code == -signal.SIGKILL:
        cause = " (SIGKILL, which the system sends if no memory is free)"
    elif exit_code is not None and exit_code < 0:
        cause = f" ({signal.Signals(-exit_code).name})"
    elif exit_code is not None:
        cause = f" (exit code {exit_code})"
    message = f"{name} ended{cause}; see {log}"
    advice = advise_on_log(read_tail(log))
    if advice:
        message += f"\n{advice}"
    return message


def _process_exists(pid: int) -> bool:
    """Return whether a process of any user has this pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
