"""The folder in which the page asks for rushes, without anybody who runs them."""

import json
from pathlib import Path
from typing import Any


class Rushes:
    """What the page asked for, and what it is to be told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def wanted(self) -> dict[str, Any] | None:
        path = self.folder / "wanted"
        return dict(json.loads(path.read_text())) if path.exists() else None

    @property
    def is_to_stop(self) -> bool:
        return (self.folder / "stop").exists()

    def begin(self) -> None:
        """A rush is on."""
        self._write("wanted", {"lock": "none"})

    def end(self) -> None:
        (self.folder / "wanted").unlink()

    def say(self, rush: object) -> None:
        """How far it is."""
        self._write("state", {"rush": rush})

    def ran(self, run: dict[str, Any]) -> None:
        """It is over, and ended so."""
        self._write("state", {"rush": None, "runs": {run["sale"]: run}})

    def _write(self, name: str, value: object) -> None:
        (self.folder / name).write_text(json.dumps(value))
