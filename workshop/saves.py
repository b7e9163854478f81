"""Which exercises were saved since the last look."""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int]


class Saves:
    """Looks at the exercises in a folder. No inotify: WSL and containers have none to rely on.

    A file counts as saved when two looks in a row found it changed, the same, and not empty: an
    editor may remove it, or write it in parts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = self._stamps()
        self._changing: dict[Path, Stamp] = {}

    def saved(self) -> list[Path]:
        """The files that were saved since the last call."""
        found = []
        for path, stamp in self._stamps().items():
            if stamp == self._known.get(path) or stamp[1] == 0:
                self._changing.pop(path, None)
            elif self._changing.get(path) == stamp:
                self._known[path] = stamp
                found.append(path)
            else:
                self._changing[path] = stamp
        return found

    def ignore(self, path: Path) -> None:
        """Take this file as it is: nobody has saved it."""
        try:
            self._known[path] = _stamp(path)
        except OSError:
            self._known.pop(path, None)

    def _stamps(self) -> dict[Path, Stamp]:
        found = {}
        for path in self._folder.glob("ex*.py"):
            try:
                found[path] = _stamp(path)
            except OSError:  # removed since it was listed
                continue
        return found


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size
