"""A process of its own: one JSON object per line in, one JSON answer per line out."""

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from .server import eventually

#: The package of the locks, whatever it is called here, and the folder that it is imported from.
LOCKS = __package__.rpartition(".")[0]
ROOT = Path(__file__).parents[LOCKS.count(".") + 2]


class Process:
    """Runs `module` with a server's port as its argument; the module says what it can do."""

    def __init__(self, port: int, module: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert self.answer() == "ready"

    def send(self, do: str, **arguments: Any) -> None:
        """Send a command, and do not wait for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest thing sent."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, do: str, **arguments: Any) -> Any:
        self.send(do, **arguments)
        return self.answer()

    def pause(self) -> None:
        """SIGSTOP, and wait until it is stopped."""
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        if stat.exists():
            eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
