"""The folder through which the page starts rushes, without make serve."""

import json
from pathlib import Path
from typing import Any


class Rushes:
    """Reads the requests of the page, and writes the state of the rushes as make serve does."""

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
        """Begin a rush."""
        self._write("wanted", {"lock": "none"})

    def end(self) -> None:
        (self.folder / "wanted").unlink()

    def say(self, rush: object) -> None:
        """Write the progress of the rush."""
        self._write("state", {"rush": rush})

    def ran(self, run: dict[str, Any]) -> None:
        """Write the run of a rush that has ended."""
        self._write("state", {"rush": None, "runs": {run["sale"]: run}})

    def _write(self, name: str, value: object) -> None:
        (self.folder / name).write_text(json.dumps(value))
