"""How long one step of a check may take."""

from __future__ import annotations

import faulthandler

#: Seconds until code that does not come back is given up.
LONGEST = 12.0

_watched = False


def watch() -> None:
    """From now on a step that takes too long ends this process with a trace of all threads."""
    global _watched
    _watched = True
    alive()


def alive() -> None:
    """A new step begins: a slow machine that gets on is no endless loop."""
    if _watched:
        faulthandler.dump_traceback_later(LONGEST, exit=True)
