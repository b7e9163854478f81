"""The Lua scripts, what is sent to run them, and the errors that come back. No I/O.

Each script is a file of its own in lua/, with its KEYS, ARGV and returns. Errors are distinguished
by the names of their classes: redis-py and valkey-py have the same names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
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


Arg = bytes | str | int
Call = tuple[Script, Sequence[bytes], Sequence[Arg]]  # a script with its KEYS and ARGV


class WireError(Exception):
    """No answer from the server, or an error for one. The cause is redis-py's exception.

    sent  whether the command was sent, and so may have been, or will be, executed
    """

    def __init__(self, cause: BaseException, *, sent: bool) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.sent = sent
        self.__cause__ = cause


def is_a(error: BaseException, name: str) -> bool:
    """Whether the error's class, or one of its bases, has this name."""
    return any(kind.__name__ == name for kind in type(error).__mro__)


def exceptions_of(client_or_connection: type) -> Any:
    """The module with the exceptions of such clients or connections: redis-py's, or valkey-py's."""
    packages = (kind.__module__.partition(".")[0] for kind in client_or_connection.__mro__)
    modules = (sys.modules.get(f"{package}.exceptions") for package in packages)
    return next(module for module in modules if hasattr(module, "NoScriptError"))


def is_of_the_client(error: BaseException) -> bool:
    """Whether redis-py or valkey-py raised it, or the socket below."""
    return is_a(error, "RedisError") or is_a(error, "ValkeyError") or isinstance(error, OSError)


def is_refusal_of_replica(error: BaseException) -> bool:
    """Whether a server refused because it is a replica: it was demoted, and keeps its clients."""
    return is_a(error, "ReadOnlyError") or (
        is_a(error, "ResponseError") and "READONLY" in str(error)
    )


def evalsha(script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> bytes:
    """The script as a command, by its SHA-1."""
    return packed("EVALSHA", script.sha, len(keys), *keys, *args)


def eval_(script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> bytes:
    """The script as a command, by its text, for a server that has not got it."""
    return packed("EVAL", script.text, len(keys), *keys, *args)


def packed(*parts: Arg) -> bytes:
    """A command as it is sent: an array of strings in RESP.

    By hand, since redis-py takes longer for it, and hiredis crashes when a signal handler raises
    while it packs an int.
    """
    strings = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n%b" % (
        len(strings),
        b"".join([b"$%d\r\n%b\r\n" % (len(each), each) for each in strings]),
    )
