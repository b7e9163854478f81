"""A stand-in for make serve, at its end of the folder that demo/rush_folder.py describes."""

import json
from pathlib import Path
from typing import Any


class Rushes:
    """The page's requests for rushes, and the state of the rushes as make serve writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def request(self) -> dict[str, Any] | None:
        """The rush that the page has requested; None without one."""
        path = self.folder / "wanted"
        return dict(json.loads(path.read_text())) if path.exists() else None

    @property
    def stop_requested(self) -> bool:
        """Return whether the page has requested the end of the rush."""
        return (self.folder / "stop").exists()

    def begin(self) -> None:
        """Request a rush, as the page does."""
        self._write("wanted", {"lock": "none"})

    def end(self) -> None:
        """Remove the request, as make serve does at the end of a rush."""
        (self.folder / "wanted").unlink()

    def write_progress(self, rush: object) -> None:
        """Write the progress of the rush."""
        self._write("state", {"rush": rush})

    def finish(self, figures: dict[str, Any]) -> None:
        """Write the figures of a rush that has ended. They replace the progress."""
        self._write("state", {"rush": None, "runs": {figures["sale"]: figures}})

    def _write(self, name: str, content: object) -> None:
        (self.folder / name).write_text(json.dumps(content))
