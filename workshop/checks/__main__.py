"""Runs one check of a participant's file in a process of its own.

    python -m workshop.checks CHECK FILE

CHECK is a module of this package with a function `refusal(module)`. The last line of stdout is
JSON: {"refusal": null or {code, facts, story}}, or {"undecided": why}.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import redis

from workshop.checks.step import watch
from workshop.refusal import Refusal, Undecided


def main(check: str, path: Path) -> Refusal | None:
    """The refusal, or None."""
    import django

    django.setup()
    from shop.demo.mine import BrokenFile, OwnFile

    watch()
    try:
        module = OwnFile("mine", path).module()
    except BrokenFile as error:
        return Refusal("broken", {"error": str(error)})
    try:
        found: Refusal | None = import_module(f"workshop.checks.{check}").refusal(module)
    except Undecided:
        raise
    except Exception as error:
        line = _line(error, module)
        if line is None:
            raise  # a mistake of ours
        if _server_is_gone(error):
            raise Undecided(f"a server does not answer: {error}") from error
        return Refusal("raises", {"error": f"{path.name}: {line} {type(error).__name__}: {error}"})
    return found


def _server_is_gone(error: Exception) -> bool:
    """Whether a connection failed, which no code of the participant's can be blamed for."""
    from django.db import InterfaceError, OperationalError

    if isinstance(error, (redis.ConnectionError, redis.TimeoutError, InterfaceError)):
        return True
    known = getattr(error.__cause__, "sqlstate", None)  # None: the server has said nothing
    return isinstance(error, OperationalError) and known is None


def _line(error: BaseException, module: ModuleType) -> str | None:
    """`line 12:`, the last line of the participant's file that led to the error, if one did."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == module.__file__:
            line = f"line {trace.tb_lineno}:"
        trace = trace.tb_next
    return line


if __name__ == "__main__":
    try:
        refused = main(sys.argv[1], Path(sys.argv[2]))
        said: dict[str, object] = {"refusal": refused and refused.as_dict()}
    except Undecided as error:
        said = {"undecided": str(error)}
    print(json.dumps(said), flush=True)
    os._exit(0)  # a thread of the participant's must not keep the check waiting
