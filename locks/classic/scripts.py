"""The articles' scripts, in the folder lua/ beside this file."""

from __future__ import annotations

from pathlib import Path

from ..scripts import Script
from ..scripts import script as load

FOLDER = Path(__file__).parent / "lua"


def script(name: str) -> Script:
    """The script in classic/lua/<name>.lua."""
    return load(name, FOLDER)
