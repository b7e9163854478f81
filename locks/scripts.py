"""The Lua scripts, each a file of its own in locks/lua/ with its KEYS, ARGV and returns."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "lua"
INCLUDE = "-- include "


class Script(NamedTuple):
    """A script's text and the SHA-1 by which a server knows it."""

    text: str
    sha: str

    def __call__(self, client: Any, keys: list[str], args: list[str | int]) -> Any:
        """Run it with one EVALSHA; a server that has not seen it yet gets the text (EVAL)."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *args)
        except Exception as error:
            if type(error).__name__ != "NoScriptError":  # redis-py's or valkey-py's
                raise
            return client.eval(self.text, len(keys), *keys, *args)


def _read(name: str, folder: Path) -> str:
    lines = (folder / f"{name}.lua").read_text().splitlines(keepends=True)
    return "".join(
        _read(line.removeprefix(INCLUDE).strip(), folder) if line.startswith(INCLUDE) else line
        for line in lines
    )


@cache
def script(name: str, folder: Path = FOLDER) -> Script:
    """The script in <folder>/<name>.lua, its `-- include` lines replaced by those files."""
    text = _read(name, folder)
    return Script(text, sha1(text.encode()).hexdigest())
