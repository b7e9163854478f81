"""What the commands print to, whatever characters and however many columns it has."""

from __future__ import annotations

import codecs
import io
import sys

from rich.console import Console

#: Columns of output to a pipe or a file: enough for the matrix.
WIDTH = 120
#: Characters that some encodings lack -> what is printed instead.
PLAIN = {"✓": "+", "✗": "x", "…": "...", "·": ".", "•": "-", "─": "-", "━": "-", "│": "|"}


def console() -> Console:
    """A console on stdout. What its encoding lacks is printed in plain characters."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")
    return Console(width=None if sys.stdout.isatty() else WIDTH)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    refused = error.object[error.start : error.end]
    return "".join(PLAIN.get(one, "?") for one in refused), error.end
