"""Runs one command of python -m loadtest: a subparser for each."""

import argparse
import signal
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from pkgutil import resolve_name

from rich.console import Console

from loadtest.commands.output import console_on_stdout
from loadtest.commands.rushes import CONTRAST
from loadtest.expected import EXPECTED as LOCKS
from loadtest.faults import FAULTS
from loadtest.load.figures import CONSTANT, EXPONENTIAL, MOST_ARRIVALS, MOST_CLIENTS, MOST_SECONDS
from loadtest.rush.bounds import BUYERS, RUSH, Parse, number, whole
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import NAMES, SERVERS, StackError
from servers import embedded
from servers.embedded import EmbeddedError
from servers.errors import explain
from servers.signals import end_on, end_on_hangup_and_sigterm


def names(what: str, known: Collection[str]) -> Parse:
    """A parser of these names, separated by commas. It raises ArgumentTypeError for others, with
    the known ones, and where there is none."""

    def parse(text: str) -> list[str]:
        found = [name.strip() for name in text.split(",") if name.strip()]
        if not found:
            raise argparse.ArgumentTypeError(f"{text!r} names nothing: give names, or leave it out")
        if unknown := ", ".join(name for name in found if name not in known):
            there_are = ", ".join(known)
            raise argparse.ArgumentTypeError(f"unknown {what}: {unknown}; there are {there_are}")
        return found

    return parse


def own_file(text: str) -> str:
    """The whole path of a file. Raises ArgumentTypeError where there is none."""
    path = Path(text).resolve()
    if not path.is_file() or "," in str(path):
        raise argparse.ArgumentTypeError(f"{text!r} is no file, or has a comma in its path")
    return str(path)


#: The verdicts that --expect may name.
EXPECTED = ("exact", "oversold")
#: Each option with its parser, or the words that it may be, and help.
OPTIONS: dict[str, tuple[Parse | Sequence[str], str]] = {
    "lock": (
        names("lock", LOCKS),
        f"strategies, comma-separated; default: {','.join(CONTRAST)}, or all",
    ),
    "fault": (names("fault", FAULTS), "faults, comma-separated; default: all"),
    "seed": (whole(0, 10**12 - 1), "repeats what was drawn"),
    "minutes": (number(0.01, 24 * 60), "how long; default: 2"),
    "buyers": (BUYERS, "default: 200"),
    "stock": (RUSH["stock"], "units on the shelf; default: 100"),
    "hold-ms": (RUSH["hold_ms"], "milliseconds between check and decrement"),
    "nodes": (whole(1, len(NAMES)), "application servers; default: 2"),
    "workers": (whole(1, 16), "processes per node; default: 2"),
    "locust-workers": (whole(1, 16), "Locust's processes for the buyers; default: 1"),
    "repeat": (whole(1, 1000), "rushes at most; default: 10"),
    "server": (SERVERS, f"{' or '.join(SERVERS)}: what serves the nodes"),
    "mine": (own_file, "a file of yours that sells as the lock `mine`"),
    "host": (str, "address of your shop, such as http://127.0.0.1:8001"),
    "deadline": (RUSH["deadline"], "seconds after which buyers give up; default: 60"),
    "i-may-load": (str, "the name of a machine, not this one, that you may rush"),
    "expect": (EXPECTED, "exit with 0 for this verdict; default: exact"),
    "clients": (whole(1, MOST_CLIENTS), "closed model: each buys again and again; default: 64"),
    "arrivals-per-second": (
        number(0.1, MOST_ARRIVALS),
        "open model: buyers arrive at this rate, whether or not others were answered",
    ),
    "arrivals": (
        (EXPONENTIAL, CONSTANT),
        f"open model: {EXPONENTIAL} (default) or {CONSTANT} times between them",
    ),
    "cap": (whole(1, MOST_CLIENTS), "open model: the most who may wait for an answer; 2000"),
    "seconds": (number(0.5, MOST_SECONDS), "measured, of each strategy in each round; 10"),
    "warm-up": (number(0, 60), "seconds of selling before that; 1"),
    "products": (whole(1, 1000), "1 is one hot product; default: 1"),
    "skew": (number(0, 5), "of --products: Zipf's exponent, 0 for all alike; default: 1.1"),
    "rounds": (whole(1, 100), "each strategy once in each; default: 1"),
}
#: Options whose field has another name.
FIELDS = {"lock": "locks", "fault": "faults", "i-may-load": "allowed"}
STACK = "nodes workers locust-workers"
RUSHED = f"lock buyers stock hold-ms {STACK} server"
#: Each command with its options and what it does.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (RUSHED, "the same rush under each lock, with a verdict each (the default)"),
    "matrix": (RUSHED, "every strategy under the rush, each compared with its expected verdict"),
    "faults": (
        "lock fault server",
        "every fault made for real, each strategy compared with its expected verdict",
    ),
    "chaos": (
        "seed minutes",
        "random faults at random times during rushes of the sound strategies",
    ),
    "target": (
        "host buyers stock deadline repeat i-may-load expect",
        "the rush against a shop of your own: target my_shop.py --host http://127.0.0.1:8001",
    ),
    "load": (
        f"lock stock hold-ms {STACK} clients arrivals-per-second arrivals cap seconds warm-up "
        "products skew rounds",
        "sustained sales: buyers who keep coming, at a rate or one purchase after the other",
    ),
    "serve": (
        f"lock buyers {STACK} mine server",
        "the shop with its page, and Locust's web UI, left running",
    ),
}
#: The functions of commands that have no module of their own.
ELSEWHERE = {"demo": "rushes:demo", "matrix": "rushes:matrix"}


def parse(arguments: Sequence[str], description: str | None) -> argparse.Namespace:
    """The command, and those of its options that were given, by the names of its fields. Ends with
    a message where one is wrong. Without a command it is the first one."""
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=description)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command, (options, says) in COMMANDS.items():
        own = commands.add_parser(
            command,
            help=says,
            description=says,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        if command == "target":
            own.add_argument(
                "file", type=Path, help="how your shop is bought from: docs/your-shop.md"
            )
        for name in options.split():
            kind, what = OPTIONS[name]
            own.add_argument(
                f"--{name}",
                dest=FIELDS.get(name, name.replace("-", "_")),
                help=what,
                metavar="...",
                required=name == "host",
                **({"type": kind} if callable(kind) else {"choices": kind}),
            )
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = [next(iter(COMMANDS)), *arguments]
    return parser.parse_args(arguments)


def main(arguments: Sequence[str], description: str | None = None) -> int:
    """Run one command. Returns its exit code, as exit_code_of() does."""
    options = vars(parse(arguments, description))
    command = options.pop("command")
    run = resolve_name(f"loadtest.commands.{ELSEWHERE.get(command, f'{command}:run')}")
    return exit_code_of(lambda console: int(run(console, **options)))


def exit_code_of(run: Callable[[Console], int]) -> int:
    """What `run` returns: 0, or 1 for verdicts off; 2 for what did not start, 130 after Ctrl-C.
    Whatever happens, what was started is stopped before anything is printed of it."""
    end_on(signal.SIGINT)
    end_on_hangup_and_sigterm()
    console = console_on_stdout()
    try:
        return run(console)
    except (StackError, EmbeddedError, ShopUnreachable) as error:
        failed = str(error)
    except OSError as error:
        failed = explain(error)
    except KeyboardInterrupt:
        embedded.detach()
        console.print("stopped; everything that was started is stopped too")
        return 130
    embedded.detach()
    console.print(failed, style="red", markup=False, soft_wrap=True)
    return 2
