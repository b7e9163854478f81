"""Checks of the participant's file, on servers that stay up from one check to the next."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from rich.console import Console

from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import ROOT, StackError
from servers.embedded import EmbeddedError
from workshop.bench import Bench
from workshop.checker import UNDECIDED, Result, announced, check
from workshop.lessons import Lesson
from workshop.refusal import Refusal

#: The file's name on the nodes, whichever lesson it belongs to.
CHECKED = "exercise.py"


class Checking:
    """Checks copies of files. The servers are started when the first check needs them."""

    def __init__(self, out: Console, log: IO[bytes]) -> None:
        self.out = out
        self.log = log
        self._bench: Bench | None = None
        # A copy of its own for each session: two of them may run at a time.
        self._folder = tempfile.TemporaryDirectory(prefix="oversold-workshop-")
        self._own = Path(self._folder.name) / CHECKED

    def check(self, lesson: Lesson, file: Path) -> Result:
        """What became of this file. After an undecided check the servers are started anew."""
        try:
            self._own.write_bytes(file.read_bytes())
        except OSError:
            return Result(Refusal("gone", {"file": file.name}))
        self.out.print(f"checking: {announced(lesson)}", markup=False)
        try:
            result = check(lesson, self._own, self._servers())
        except (StackError, EmbeddedError, ShopUnreachable, OSError) as error:
            if self._bench is None:  # nothing started: what does this machine lack?
                self.out.print(f"{error}\n", markup=False)
                doctor = [sys.executable, "-m", "servers.doctor"]
                subprocess.run(doctor, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
            result = Result(undecided=f"{error}\nSee {os.path.relpath(self.log.name, ROOT)}.")
        if result.exit_code == UNDECIDED:
            self._stop_servers()
        return result.named(CHECKED, file.name)

    def close(self) -> None:
        """Stop the servers, and remove the copy."""
        self._stop_servers()
        self._folder.cleanup()

    def _servers(self) -> Bench:
        if self._bench is None:
            bench = Bench(self._own, log=self.log, progress=self._step)
            bench.__enter__()
            self._bench = bench
        return self._bench

    def _stop_servers(self) -> None:
        if self._bench is not None:
            self._bench.stop()
            self._bench = None

    def _step(self, step: str) -> None:
        self.out.print(f"[dim]{step}[/]")
