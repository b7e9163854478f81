"""Where the shop's page asks for a rush: files in a folder that its nodes know too.

shop/demo/rush.py has the other side, and says what the files mean.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from loadtest.rush.locust_process import LocustProcess
from loadtest.stack.node import StackError

#: Seconds between two looks into the folder.
LOOK_EVERY = 0.1
#: The fields of the last run that a page asks for four times a second.
SHORT = ("sale", "lock", "verdict", "stopped", "error")


class Desk:
    """Runs each rush that the page asks for, from a thread, while the block lasts.

    token  the shop's SHOP_RESTOCK_TOKEN
    """

    def __init__(
        self, folder: Path, buyers: LocustProcess, hosts: Sequence[str], token: str
    ) -> None:
        self.folder = folder
        self.buyers = buyers
        self.hosts = hosts
        self.token = token
        self.runs: dict[int, dict[str, Any]] = {}
        self.number = 0
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The buyers have to end before, or with them a rush that is on."""
        self._is_closed.set()
        self.buyers.__exit__()
        self._thread.join()

    def _serve(self) -> None:
        wanted = self.folder / "wanted"
        while not self._is_closed.wait(LOOK_EVERY):
            if wanted.exists():
                self._rush(json.loads(wanted.read_text()))
                (self.folder / "stop").unlink(missing_ok=True)
                wanted.unlink()

    def _rush(self, wanted: dict[str, Any]) -> None:
        try:
            run = self.buyers.rush(
                self.hosts, **wanted, restock_token=self.token, heard=self._is_to_stop
            )
            self.runs[run["sale"]] = run
        except StackError as error:  # shown where the verdict would be
            run = {"lock": wanted["lock"], "verdict": "unknown", "error": str(error)}
        self.number += 1
        self._write("runs", self.runs)
        self._say(None, {name: run[name] for name in SHORT if name in run})

    def _is_to_stop(self, progress: dict[str, Any]) -> bool:
        self._say(progress, None)
        return (self.folder / "stop").exists()

    def _say(self, rush: dict[str, Any] | None, last: dict[str, Any] | None) -> None:
        self._write("state", {"number": self.number, "rush": rush, "last": last})

    def _write(self, name: str, value: object) -> None:
        new = self.folder / f".{name}"
        new.write_text(json.dumps(value))
        new.replace(self.folder / name)
