"""python -m loadtest: show the oversell, then the locks that stop it.

demo   the same rush under each lock, with a verdict each (the default)
matrix every strategy under the rush, each compared with its expected verdict
faults every fault made for real, each strategy compared with its expected verdict
chaos  random faults at random times during rushes of the sound strategies
bench  the rush under `redis` compared with other locks and the floor, in interleaved rounds
serve  the shop with its page, and Locust's web UI, left running
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable

from rich.console import Console

from loadtest.commands import bench, chaos, demo, matrix, serve
from loadtest.commands import faults as command
from loadtest.commands.run import CONTRAST, Setting
from loadtest.stack.stack import StackError
from servers.embedded import EmbeddedError

#: Columns of output to a pipe or a file: enough for the matrix.
WIDTH = 120
COMMANDS = {"demo": demo.run, "matrix": matrix.run, "bench": bench.run, "serve": serve.run}
#: The commands that break something, which take other arguments.
BREAKING = ("faults", "chaos")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=[*COMMANDS, *BREAKING], default="demo")
    parser.add_argument(
        "--lock",
        help=f"strategies, comma-separated; default: {','.join(CONTRAST)}, or all (matrix, faults)",
    )
    parser.add_argument("--fault", help="faults, comma-separated; default: all")
    parser.add_argument(
        "--seed", type=int, help="faults: shuffle their order; chaos: repeat its faults"
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="of chaos; default: %(default)s")
    parser.add_argument("--buyers", type=_at_least(1), default=200, help="default: %(default)s")
    parser.add_argument("--stock", type=_at_least(0), default=100, help="default: %(default)s")
    parser.add_argument(
        "--hold-ms",
        type=_at_least(0),
        default=0,
        help="milliseconds between check and decrement; default: %(default)s",
    )
    parser.add_argument("--nodes", type=_at_least(1), default=2, help="default: %(default)s")
    parser.add_argument(
        "--workers", type=_at_least(1), default=2, help="processes per node; default: %(default)s"
    )
    parser.add_argument("--repeat", type=_at_least(1), help="rounds (matrix: 1, bench: 11)")
    parser.add_argument("--verbose", action="store_true", help="show where the time goes")
    given = parser.parse_args()
    setting = Setting(
        locks=_locks(given.lock, given.command),
        repeat=given.repeat or (11 if given.command == "bench" else 1),
        buyers=given.buyers,
        stock=given.stock,
        hold_ms=given.hold_ms,
        nodes=given.nodes,
        workers=given.workers,
        verbose=given.verbose,
    )
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        if given.command in BREAKING:
            return _break(given, console)
        return COMMANDS[given.command](setting, console)
    except (StackError, EmbeddedError) as error:
        console.print(f"[red]{error}[/]", highlight=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        console.print("stopped; everything that was started is stopped too")
        return 130


def _break(given: argparse.Namespace, console: Console) -> int:
    """Run faults or chaos."""
    if given.command == "faults":
        chosen = command.Chosen(_names(given.fault), _names(given.lock), given.seed)
        return command.run(chosen, console, verbose=given.verbose)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    return chaos.run(given.minutes, seed, console, verbose=given.verbose)


def _names(given: str | None) -> list[str]:
    return [name.strip() for name in (given or "").split(",") if name.strip()]


def _locks(given: str | None, command: str) -> list[str]:
    if given is None:
        return list(CONTRAST) if command == "demo" else []
    return _names(given)


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())
