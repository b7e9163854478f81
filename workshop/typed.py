"""Lines that are typed, while something else goes on."""

from __future__ import annotations

import sys
import threading
from queue import Empty, Queue

from rich.console import Console


class Typed:
    """Lines from stdin. In a session a thread reads them: files are watched meanwhile."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self._lines: Queue[str | None] | None = None

    @property
    def in_a_session(self) -> bool:
        """Whether a thread reads stdin."""
        return self._lines is not None

    def read(self) -> None:
        """Read from now on in a thread."""
        lines: Queue[str | None] = Queue()
        self._lines = lines

        def all_of_it() -> None:
            for line in sys.stdin:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=all_of_it, daemon=True).start()

    def line(self, seconds: float) -> str | None:
        """The next line of a session; None at the end of the input. Raises Empty."""
        assert self._lines is not None
        return self._lines.get(timeout=seconds)

    def was_any(self) -> bool:
        """Whether a line was typed in the session; it is taken away."""
        try:
            return self._lines is not None and self._lines.get_nowait() is not None
        except Empty:
            return False

    def letter(self, prompt: str, options: int) -> str:
        """A letter that is typed now, asked for until it is one; empty for Enter alone."""
        letters = ["", *"abcdefgh"[:options]]
        while True:
            self.out.print(prompt, end="", markup=False)
            # In a session its reader has stdin.
            line = sys.stdin.readline() if self._lines is None else self._lines.get()
            letter = (line or "").strip().lower()
            if letter in letters:
                return letter
            self.out.print(f"one of{', '.join(letters)[1:]}; Enter alone is no idea", markup=False)
