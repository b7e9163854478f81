"""The folder through which the page and make serve communicate, for tests without make serve.

demo/rush_folder.py describes its files. In a rush, many buyers buy at once.
"""

import json
from pathlib import Path
from typing import Any


class RushFolder:
    """Reads what the page writes into the folder, and writes what make serve would write.

    The page writes requests for rushes. make serve writes the progress and the results of rushes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def request(self) -> dict[str, Any] | None:
        """The rush that the page has requested; None if there is no request."""
        path = self.folder / "wanted"
        return dict(json.loads(path.read_text())) if path.exists() else None

    @property
    def is_stop_requested(self) -> bool:
        """Whether the page has requested the end of the rush."""
        return (self.folder / "stop").exists()

    def write_request(self) -> None:
        """Request a rush, as the page does."""
        self._write("wanted", {"lock": "none"})

    def remove_request(self) -> None:
        """Remove the request, as make serve does at the end of a rush."""
        (self.folder / "wanted").unlink()

    def write_progress(self, rush: object) -> None:
        """Write the progress of the running rush, as make serve does."""
        self._write("state", {"rush": rush})

    def write_finished_rush(self, rush: dict[str, Any]) -> None:
        """Replace the progress by the results of a rush that has ended, as make serve does."""
        self._write("state", {"rush": None, "runs": {rush["sale"]: rush}})

    def _write(self, name: str, content: object) -> None:
        (self.folder / name).write_text(json.dumps(content))
