"""A session of the workshop in a terminal of 80 columns and 24 lines."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

from loadtest.tests.checkout import ROOT, make_user_environment

#: Timeout for expected output and for the end of the session. The first command of a session starts
#: servers and migrates a database, which takes long on a busy machine.
TIMEOUT_SECONDS = 75.0
#: How long one read waits for output.
POLL_INTERVAL_SECONDS = 1.0
ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A terminal in which `python -m workshop` runs, in a copy of the project.

    raw   everything printed so far
    text  everything printed so far, without escape sequences
    """

    def __init__(self, project: Path, **environment: str) -> None:
        """Start the session. Use this object in a `with` block; the session ends with the block.

        project      the folder of the copy of the project
        environment  further variables of the session
        """
        self.project = project
        self.raw = ""
        self.text = ""
        self._match_end = 0  # the position in `text` after the last match of expect()
        self._terminal_fd, session_fd = pty.openpty()
        fcntl.ioctl(session_fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workshop"],
            cwd=project,
            env=make_user_environment() | {"VENV": str(ROOT / ".venv"), **environment},
            stdin=session_fd,
            stdout=session_fd,
            stderr=session_fd,
            start_new_session=True,
            # This terminal controls the process, so that a typed Ctrl-C sends SIGINT.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(session_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(TIMEOUT_SECONDS)
        os.close(self._terminal_fd)

    def type_line(self, line: str) -> None:
        """Type a line and Enter."""
        os.write(self._terminal_fd, f"{line}\n".encode())

    def press_ctrl_c(self) -> None:
        os.write(self._terminal_fd, b"\x03")

    def expect(self, pattern: str) -> str:
        """Wait for this pattern in the output after the last match, and return the new match."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (match := re.search(pattern, self.text[self._match_end :])):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text[-2000:]}"
            assert self._read(), f"the session ended without {pattern!r}: {self.text[-2000:]}"
        self._match_end += match.end()
        return match[0]

    def wait_for_end(self) -> int:
        """Wait for the end of the session, and return its exit code."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self._read():
            assert time.monotonic() < deadline, f"the session should end: {self.text[-2000:]}"
        return self.process.wait(TIMEOUT_SECONDS)

    def _read(self) -> bool:
        """Read output, and wait up to POLL_INTERVAL_SECONDS for it.

        Return False if no process can write any more.
        """
        ready_fds, _, _ = select.select([self._terminal_fd], [], [], POLL_INTERVAL_SECONDS)
        if not ready_fds:
            return True
        try:
            output = os.read(self._terminal_fd, 65536)
        except OSError:  # Linux's error for a terminal that no process has open
            return False
        self.raw += output.decode(errors="replace")
        self.text = ESCAPE_SEQUENCE.sub("", self.raw).replace("\r\n", "\n")
        return bool(output)  # empty on macOS if no process has the terminal open
