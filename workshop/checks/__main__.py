"""Runs one check of a participant's file in a process of its own.

    python -m workshop.checks CHECK FILE

CHECK is `module.function` of this package, or a module whose function is `refusal`. The last line
of stdout is JSON: {"refusal": null or {code, facts, story}}, or {"undecided": why}.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from types import ModuleType

import redis

from workshop.checks.watch import watch
from workshop.refusal import Refusal, Undecided


def main(check: str, path: Path) -> Refusal | None:
    """The refusal, or None. Raises Undecided, or an error that is a mistake of ours."""
    import django

    django.setup()
    from shop.demo.mine import BrokenFile, OwnFile

    watch(path, say)
    try:
        module = OwnFile("mine", path).module()
    except BrokenFile as error:
        return Refusal("broken", {"error": str(error)})
    name, _, function = check.partition(".")
    find = getattr(import_module(f"workshop.checks.{name}"), function or "refusal")
    try:
        found: Refusal | None = find(module)
    except Undecided:
        raise
    except (Exception, SystemExit) as error:
        found = _mistake(error, module)
        if found is None:
            raise
    return found


def _mistake(error: BaseException, module: ModuleType) -> Refusal | None:
    """The refusal for code that broke off, or returned what it must not; None if the error did not
    come from the participant's file. Raises Undecided where a server is gone."""
    from shop.demo.mine import BrokenFile

    chain = list(_causes(error))
    for each in chain:
        if isinstance(each, BrokenFile):
            return Refusal("raises" if each.__cause__ else "no-receipt", {"error": str(each)})
    name, last = Path(str(module.__file__)).name, chain[-1]
    if isinstance(last, AttributeError) and last.obj is module:
        return Refusal("raises", {"error": f"{name} defines no {last.name}"})
    lines = [line for each in chain if (line := _line(each, module))]
    if not lines:
        return None
    if any(map(_server_is_gone, chain)):
        raise Undecided(f"a server does not answer: {last}") from error
    return Refusal("raises", {"error": f"{name}: {lines[0]} {type(last).__name__}: {last}"})


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, as far as the code that raised it says so."""
    while error is not None:
        yield error
        error = error.__cause__


def _server_is_gone(error: BaseException) -> bool:
    """Whether a connection failed, which no code of the participant's can be blamed for."""
    from django.db import InterfaceError, OperationalError

    if isinstance(error, (redis.ConnectionError, redis.TimeoutError, InterfaceError)):
        return True
    known = getattr(error.__cause__, "sqlstate", None)  # None: the server has said nothing
    return isinstance(error, OperationalError) and known is None


def _line(error: BaseException, module: ModuleType) -> str | None:
    """`line 12:`, the last line of the participant's file that led to the error, if one did."""
    trace = walk_tb(error.__traceback__)
    lines = [line for frame, line in trace if frame.f_code.co_filename == module.__file__]
    return f"line {lines[-1]}:" if lines else None


def say(found: Refusal | Undecided | None) -> None:
    """Print what was found, and end this process: no thread of the participant's may keep it."""
    if isinstance(found, Undecided):
        said: dict[str, object] = {"undecided": str(found)}
    else:
        said = {"refusal": found and asdict(found)}
    print(f"\n{json.dumps(said, default=str)}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    try:
        say(main(sys.argv[1], Path(sys.argv[2])))
    except Undecided as error:
        say(error)
