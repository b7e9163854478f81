"""The arguments of python -m loadtest. One that a command does not use is refused, not ignored."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from loadtest.commands.run import CONTRAST
from loadtest.load.plan import CONSTANT, EXPONENTIAL, MOST_ARRIVALS, MOST_CLIENTS, MOST_SECONDS
from loadtest.rush.form import CROWD, REFUSED_HOLD_MS, RUSH, number, whole
from loadtest.stack.stack import NAMES, SERVERS


def one_of(known: Sequence[str]) -> Callable[[str], str]:
    """One of these names. Raises ArgumentTypeError for another one."""

    def parsed(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")
        return text

    return parsed


#: The commands that run rushes, and those that break something.
RUSHES = ("demo", "matrix", "bench", "growth")
BREAKING = ("faults", "chaos")
COMMANDS = (*RUSHES, "load", "serve", *BREAKING, "target")
#: The options of `load` alone, each with its parser and help; plan.Demand explains them.
LOAD: dict[str, tuple[Callable[[str], object], str]] = {
    "clients": (whole(1, MOST_CLIENTS), "closed model: clients, each buys again and again; 64"),
    "arrivals_per_second": (
        number(0.1, MOST_ARRIVALS),
        "open model: buyers arrive at this rate, whether or not others were answered",
    ),
    "arrivals": (
        one_of((EXPONENTIAL, CONSTANT)),
        f"open model: {EXPONENTIAL} (default) or {CONSTANT} times between them",
    ),
    "cap": (whole(1, MOST_CLIENTS), "open model: the most who may wait for an answer; 2000"),
    "seconds": (number(0.5, MOST_SECONDS), "measured, of each strategy in each round; 10"),
    "warm_up": (number(0, 60), "seconds of selling before that; 1"),
    "products": (whole(1, 1000), "1 is one hot product; default: 1"),
    "skew": (number(0, 5), "of --products: Zipf's exponent, 0 for all alike; default: 1.1"),
    "threads": (whole(1, 1000), "of each worker"),
    "rounds": (whole(1, 100), "each strategy once in each; default: 1"),
}
#: The verdicts that --expect may name.
EXPECTED = ("exact", "oversold")
#: Which commands take which argument; all take --verbose.
TAKEN_BY = {
    "lock": ("demo", "matrix", "load", "growth", "faults", "serve"),
    "fault": ("faults",),
    "seed": (*BREAKING, "load"),
    "minutes": ("chaos",),
    "buyers": (*RUSHES, "serve", "target"),
    "stock": (*RUSHES, "load", "target"),
    "hold_ms": (*RUSHES, "load"),
    "nodes": (*RUSHES, "load", "serve"),
    "workers": (*RUSHES, "load", "serve"),
    "locust_workers": (*RUSHES, "load", "serve"),
    "repeat": ("matrix", "bench", "growth", "target"),
    "max_waiting": ("growth",),
    "mine": ("serve",),
    "server": (*RUSHES, "serve", "faults"),
    "host": ("target",),
    "deadline": ("target",),
    "i_may_load": ("target",),
    "expect": ("target",),
    **dict.fromkeys(LOAD, ("load",)),
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

    add("lock", names, f"strategies, comma-separated; default: {','.join(CONTRAST)}, or all; serve "
        "prints the address of their steps")  # fmt: skip
    add("fault", names, "faults, comma-separated; default: all")
    add("seed", whole(0, 10**12 - 1), "faults: shuffle their order; chaos: repeat its faults")
    add("minutes", minutes, "how long; default: 2")
    add("buyers", several(CROWD["user_count"]), "default: 200; growth: several, 200,1000,2000,5000")
    add("stock", RUSH["stock"], "default: 100")
    add("hold_ms", whole(0, REFUSED_HOLD_MS - 1), "milliseconds between check and decrement")
    add("nodes", several(whole(1, len(NAMES))), "default: 2; growth: several, 1,2,4")
    add("workers", whole(1, 16), "processes per node; default: 2")
    add(
        "locust_workers",
        whole(1, 16),
        "Locust's processes for the buyers; default: 1, without a master",
    )
    add("repeat", whole(1, 1000), "rounds; default: 1, bench 11; target: at most, 10")
    add("max_waiting", several(whole(0, 10_000)), "several values of SHOP_MAX_WAITING; default: 0")
    add(
        "server",
        one_of(SERVERS),
        f"{' or '.join(SERVERS)}: what serves the nodes; default: {SERVERS[0]}",
    )
    add("mine", own_file, "a file of yours that sells as the lock `mine`")
    add("host", str, "address of your shop, such as http://127.0.0.1:8001")
    add("deadline", RUSH["deadline"], "seconds after which buyers give up; default: 60")
    add("i_may_load", str, "the name of a machine, not this one, that you may rush")
    add(
        "expect",
        one_of(EXPECTED),
        "exact or oversold: exit with 0 for that verdict; default: exact",
    )
    for name, (kind, says) in LOAD.items():
        add(name, kind, says)
    parser.add_argument("--verbose", action="store_true", help="show where the time goes")
    given = parser.parse_args(arguments)
    for name, commands in TAKEN_BY.items():
        if getattr(given, name) is not None and given.command not in commands:
            parser.error(
                f"--{name.replace('_', '-')} is for {', '.join(commands)}; "
                f"{given.command} does not use it: leave it out"
            )
    if given.command == "growth":
        given.sizes, given.counts, given.limits = given.buyers, given.nodes, given.max_waiting
        given.buyers = given.nodes = given.max_waiting = None
    for name in ("buyers", "nodes"):
        values = getattr(given, name) or [None]
        if len(values) > 1:
            parser.error(f"--{name} takes several numbers in growth alone: give one")
        setattr(given, name, values[0])
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


def several(kind: Callable[[str], object]) -> Callable[[str], list[object]]:
    """A parser of values separated by commas. It raises ArgumentTypeError."""
    return lambda text: [kind(name) for name in names(text)]


def own_file(text: str) -> str:
    """The whole path of a file. Raises ArgumentTypeError where there is none."""
    path = Path(text).resolve()
    if not path.is_file() or "," in str(path):
        raise argparse.ArgumentTypeError(f"{text!r} is no file, or has a comma in its path")
    return str(path)


def minutes(text: str) -> float:
    """Minutes, at most a day. Raises ArgumentTypeError."""
    return float(number(0.01, 24 * 60)(text))
