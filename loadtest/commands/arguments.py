"""The arguments of python -m loadtest. One that a command does not use is refused, not ignored."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from loadtest.commands.run import CONTRAST
from loadtest.rush.form import CROWD, REFUSED_HOLD_MS, RUSH, number, whole
from loadtest.stack.stack import NAMES

#: The commands that run rushes, and those that break something.
RUSHES = ("demo", "matrix", "bench")
BREAKING = ("faults", "chaos")
COMMANDS = (*RUSHES, "serve", *BREAKING, "target")
#: Which commands take which argument; all take --verbose.
TAKEN_BY = {
    "lock": ("demo", "matrix", "faults"),
    "fault": ("faults",),
    "seed": BREAKING,
    "minutes": ("chaos",),
    "buyers": (*RUSHES, "serve", "target"),
    "stock": (*RUSHES, "target"),
    "hold_ms": RUSHES,
    "nodes": (*RUSHES, "serve"),
    "workers": (*RUSHES, "serve"),
    "locust_workers": (*RUSHES, "serve"),
    "repeat": ("matrix", "bench", "target"),
    "mine": ("serve",),
    "host": ("target",),
    "deadline": ("target",),
    "i_may_load": ("target",),
}


def parse(arguments: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """The arguments, each None where it was not given. Ends with a message where one is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=COMMANDS, default="demo")
    parser.add_argument("file", nargs="?", help="target: how your shop is bought from")

    def add(name: str, kind: Callable[[str], object], says: str) -> None:
        takers = ", ".join(TAKEN_BY[name])
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=kind, help=f"{says} ({takers})", metavar="..."
        )

    add("lock", names, f"strategies, comma-separated; default: {','.join(CONTRAST)}, or all")
    add("fault", names, "faults, comma-separated; default: all")
    add("seed", whole(0, 10**12 - 1), "faults: shuffle their order; chaos: repeat its faults")
    add("minutes", minutes, "how long; default: 2")
    add("buyers", CROWD["user_count"], "default: 200")
    add("stock", RUSH["stock"], "default: 100")
    add("hold_ms", whole(0, REFUSED_HOLD_MS - 1), "milliseconds between check and decrement")
    add("nodes", whole(1, len(NAMES)), "default: 2")
    add("workers", whole(1, 16), "processes per node; default: 2")
    add("locust_workers", whole(1, 16), "processes that the buyers are in; default: 1")
    add("repeat", whole(1, 1000), "rounds; default: 1, bench 11")
    add("mine", own_file, "a file of yours that sells as the lock `mine`")
    add("host", str, "address of your shop, http://127.0.0.1:8001 say")
    add("deadline", RUSH["deadline"], "seconds after which buyers give up; default: 60")
    add("i_may_load", str, "the name of a machine, not this one, that you may rush")
    parser.add_argument("--verbose", action="store_true", help="show where the time goes")
    given = parser.parse_args(arguments)
    for name, commands in TAKEN_BY.items():
        if getattr(given, name) is not None and given.command not in commands:
            parser.error(
                f"--{name.replace('_', '-')} is for {', '.join(commands)}; "
                f"{given.command} does not use it: leave it out"
            )
    if given.command == "target" and not (given.file and given.host):
        parser.error("target needs a file and --host: target my_shop.py --host http://127.0.0.1:80")
    if given.command != "target" and given.file is not None:
        parser.error(f"{given.command} takes no file: leave {given.file} out")
    return given


def names(text: str) -> list[str]:
    """Names separated by commas. Raises ArgumentTypeError where there is none."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing: give names, or leave it out")
    return found


def own_file(text: str) -> str:
    """The whole path of a file. Raises ArgumentTypeError where there is none."""
    path = Path(text).resolve()
    if not path.is_file() or "," in str(path):
        raise argparse.ArgumentTypeError(f"{text!r} is no file, or has a comma in its path")
    return str(path)


def minutes(text: str) -> float:
    """Minutes, at most a day. Raises ArgumentTypeError."""
    return float(number(0.01, 24 * 60)(text))
