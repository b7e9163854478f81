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

from loadtest.tests.checkout import ROOT, user_environment

#: Seconds until what is expected is there. Generous: a busy machine migrates a database first.
LONGEST = 75.0
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """`python -m workshop` in a copy of the project.

    raw   everything printed so far
    text  the same without escapes
    """

    def __init__(self, project: Path, **environment: str) -> None:
        self.project = project
        self.raw = self.text = ""
        self._read_until = 0
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workshop"],
            cwd=project,
            env=user_environment() | {"VENV": str(ROOT / ".venv"), **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        os.close(self._fd)

    def types(self, line: str) -> None:
        """Type a line and Enter."""
        os.write(self._fd, f"{line}\n".encode())

    def ctrl_c(self) -> None:
        os.write(self._fd, b"\x03")

    def expects(self, pattern: str) -> str:
        """Wait for this pattern in the output since the last call, and return the match."""
        deadline = time.monotonic() + LONGEST
        while not (match := re.search(pattern, self.text[self._read_until :])):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text[-2000:]}"
            assert self._reads(), f"it ended without {pattern!r}: {self.text[-2000:]}"
        self._read_until += match.end()
        return match[0]

    def ends(self) -> int:
        """Wait for its end; its exit code."""
        deadline = time.monotonic() + LONGEST
        while self._reads():
            assert time.monotonic() < deadline, f"it does not end: {self.text[-2000:]}"
        return self.process.wait(LONGEST)

    def _reads(self) -> bool:
        """Read the present output. Return False once no process can write any more."""
        if not select.select([self._fd], [], [], 1.0)[0]:
            return True
        try:
            output = os.read(self._fd, 65536)
        except OSError:  # Linux's error for a terminal that no process has open
            return False
        self.raw += output.decode(errors="replace")
        self.text = ESCAPE.sub("", self.raw).replace("\r\n", "\n")
        return bool(output)
