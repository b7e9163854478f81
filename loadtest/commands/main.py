"""The command line of python -m loadtest: a subparser for each command."""

import argparse
import signal
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import psycopg
from redis import RedisError
from rich.console import Console

from loadtest.commands import chaos, faults, load, rushes, serve, target
from loadtest.commands.output import console_on_stdout
from loadtest.commands.rushes import Setting
from loadtest.expected import DATABASE_FAULTS, EXPECTED
from loadtest.faults import FAULTS
from loadtest.load.plan import (
    MAX_ARRIVALS_PER_SECOND,
    MAX_CLIENTS,
    MAX_SECONDS,
    LoadOptions,
)
from loadtest.rush.option_parsers import (
    RUSH_OPTIONS,
    Parser,
    number_parser,
    parse_buyers,
    whole_number_parser,
)
from loadtest.rush.plan import RushPlan
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.databases import DATABASES, POSTGRES
from loadtest.stack.stack import NODE_NAMES, SERVERS, StackError
from servers import embedded
from servers.embedded import EmbeddedError
from servers.server_errors import explain
from servers.signals import end_on, end_on_hangup_and_sigterm

#: The verdicts that --expect may name.
EXPECTABLE_VERDICTS = ("exact", "oversold")
#: Each command -> the function that runs it with its options.
COMMANDS: dict[str, Callable[..., int]] = {
    "demo": rushes.demo,
    "matrix": rushes.matrix,
    "faults": faults.run,
    "chaos": chaos.run,
    "target": target.run,
    "load": load.run,
    "serve": serve.run,
}


def main(arguments: Sequence[str], description: str | None = None) -> int:
    """Run one command and return its exit code, as exit_code_of() does."""
    options = vars(parse(arguments, description))
    run = COMMANDS[options.pop("command")]
    return exit_code_of(lambda console: run(console, **options))


def parse(arguments: Sequence[str], description: str | None) -> argparse.Namespace:
    """Return the options, named like the parameters of the command's function, and `command`.

    The default command is `demo`. A wrong argument ends the process with a message and exit code 2.
    """
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=description)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_demo(commands)
    _add_matrix(commands)
    _add_faults(commands)
    _add_chaos(commands)
    _add_target(commands)
    _add_load(commands)
    _add_serve(commands)
    names_command = arguments and not arguments[0].startswith("-")
    asks_for_help = arguments and arguments[0] in ("-h", "--help")
    if not names_command and not asks_for_help:
        arguments = ["demo"] + list(arguments)
    return parser.parse_args(arguments)


def _add_demo(commands: Any) -> None:
    summary = "the same rush under each lock, with a verdict each (the default)"
    parser = _add_command(commands, "demo", summary)
    default = Setting()
    _add_lock(parser, default.locks)
    _add_rush(parser, default)
    _add_stack(parser, default)
    _add_server(parser)
    _add_database(parser)


def _add_matrix(commands: Any) -> None:
    summary = "every strategy under the rush, each compared with its expected verdict"
    parser = _add_command(commands, "matrix", summary)
    default = Setting()
    _add_lock(parser)
    _add_rush(parser, default)
    _add_stack(parser, default)
    _add_server(parser)
    _add_database(parser)


def _add_faults(commands: Any) -> None:
    summary = "every fault made for real, each strategy compared with its expected verdict"
    parser = _add_command(commands, "faults", summary)
    _add_lock(parser)
    parser.add_argument(
        "--fault",
        dest="faults",
        type=names_parser("fault", FAULTS),
        default=(),
        metavar="NAMES",
        help="faults, comma-separated; default: all of them; on a database other than "
        f"{POSTGRES} only {', '.join(DATABASE_FAULTS)}",
    )
    _add_server(parser)
    parser.add_argument(
        "--database",
        choices=[name for name, database in DATABASES.items() if not database.needs_url],
        default=POSTGRES,
        help="the database of the shop; default: %(default)s",
    )


def _add_chaos(commands: Any) -> None:
    summary = "random faults at random times during rushes of the sound strategies"
    parser = _add_command(commands, "chaos", summary)
    parser.add_argument(
        "--minutes",
        type=number_parser(0.01, 24 * 60),
        default=2.0,
        metavar="MINUTES",
        help="length of the run; default: 2",
    )
    parser.add_argument(
        "--seed",
        type=whole_number_parser(0, 10**12 - 1),
        metavar="N",
        help="repeats the faults of an earlier run, which printed this seed",
    )


def _add_target(commands: Any) -> None:
    summary = "the rush against a shop of your own: target my_shop.py --host http://127.0.0.1:8001"
    parser = _add_command(commands, "target", summary)
    parser.add_argument(
        "target",
        type=Path,
        metavar="file",
        help="describes how to buy from your shop: docs/your-shop.md",
    )
    parser.add_argument(
        "--host",
        required=True,
        metavar="URL",
        help="address of your shop, such as http://127.0.0.1:8001",
    )
    _add_buyers(parser, RushPlan.buyers)
    _add_stock(parser, RushPlan.stock)
    parser.add_argument(
        "--deadline",
        type=RUSH_OPTIONS["deadline"],
        default=RushPlan.deadline,
        metavar="SECONDS",
        help="buyers give up after this time; default: 60",
    )
    parser.add_argument(
        "--repeat",
        type=whole_number_parser(1, 1000),
        default=10,
        metavar="N",
        help="the most rushes; default: 10",
    )
    parser.add_argument(
        "--i-may-load",
        default="",
        metavar="HOST",
        help="the host name of another machine that you may rush",
    )
    parser.add_argument(
        "--expect",
        choices=EXPECTABLE_VERDICTS,
        default="exact",
        help="exit with 0 for this verdict; default: exact",
    )


def _add_load(commands: Any) -> None:
    summary = "sustained sales: buyers who keep coming, at a rate or one purchase after the other"
    parser = _add_command(commands, "load", summary)
    default = LoadOptions()
    _add_lock(parser, default.locks)
    _add_stock(parser, default.stock)
    _add_hold(parser)
    _add_stack(parser, default)
    parser.add_argument(
        "--clients",
        type=whole_number_parser(1, MAX_CLIENTS),
        default=default.clients,
        metavar="N",
        help="closed model: each client buys again and again; default: %(default)s",
    )
    parser.add_argument(
        "--arrivals-per-second",
        type=number_parser(0.1, MAX_ARRIVALS_PER_SECOND),
        default=default.arrivals_per_second,
        metavar="RATE",
        help="open model: buyers arrive at this rate, even if earlier ones still wait",
    )
    parser.add_argument(
        "--seconds",
        type=number_parser(0.5, MAX_SECONDS),
        default=default.seconds,
        metavar="SECONDS",
        help="time that each strategy is measured in each round; default: 10",
    )
    parser.add_argument(
        "--products",
        type=whole_number_parser(1, 1000),
        default=default.products,
        metavar="N",
        help="products on sale; 1: one hot product; default: %(default)s",
    )
    parser.add_argument(
        "--skew",
        type=number_parser(0, 5),
        default=default.skew,
        metavar="EXPONENT",
        help="Zipf's exponent of the demand for --products, 0 for equal shares; "
        "default: %(default)s",
    )
    parser.add_argument(
        "--rounds",
        type=whole_number_parser(1, 100),
        default=default.rounds,
        metavar="N",
        help="rounds; each strategy is measured once in each; default: %(default)s",
    )


def _add_serve(commands: Any) -> None:
    summary = "the shop with its page, and Locust's web UI, left running"
    parser = _add_command(commands, "serve", summary)
    default = Setting()
    parser.add_argument(
        "--lock",
        dest="locks",
        type=names_parser("lock", EXPECTED),
        default=(),
        metavar="NAMES",
        help="strategies, comma-separated, for whose steps a link is printed; default: none",
    )
    _add_buyers(parser, default.buyers)
    _add_stack(parser, default)
    parser.add_argument(
        "--mine",
        dest="own_strategy_file",
        type=parse_own_file,
        default=argparse.SUPPRESS,  # argparse would parse a default that is a string
        metavar="FILE",
        help="a strategy of yours, which the page shows as the lock `mine`",
    )
    _add_server(parser)
    _add_database(parser)


def _add_command(commands: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary, allow_abbrev=False
    )
    return parser


def _add_lock(parser: argparse.ArgumentParser, default: Sequence[str] = ()) -> None:
    parser.add_argument(
        "--lock",
        dest="locks",
        type=names_parser("lock", EXPECTED),
        default=default,
        metavar="NAMES",
        help=f"strategies, comma-separated; default: {','.join(default) or 'all'}",
    )


def _add_rush(parser: argparse.ArgumentParser, default: Setting) -> None:
    _add_buyers(parser, default.buyers)
    _add_stock(parser, default.stock)
    _add_hold(parser)


def _add_buyers(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--buyers",
        type=parse_buyers,
        default=default,
        metavar="N",
        help="buyers of a rush; default: %(default)s",
    )


def _add_stock(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--stock",
        type=RUSH_OPTIONS["stock"],
        default=default,
        metavar="N",
        help="units on the shelf; default: %(default)s",
    )


def _add_hold(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hold-ms",
        type=RUSH_OPTIONS["hold_ms"],
        default=0,
        metavar="MS",
        help="milliseconds between check and decrement; default: 0",
    )


def _add_stack(parser: argparse.ArgumentParser, default: Setting | LoadOptions) -> None:
    parser.add_argument(
        "--nodes",
        type=whole_number_parser(1, len(NODE_NAMES)),
        default=default.nodes,
        metavar="N",
        help="application servers; default: %(default)s",
    )
    parser.add_argument(
        "--workers",
        type=whole_number_parser(1, 16),
        default=default.workers,
        metavar="N",
        help="processes of each node; default: %(default)s",
    )
    parser.add_argument(
        "--locust-workers",
        type=whole_number_parser(1, 16),
        default=default.locust_workers,
        metavar="N",
        help="Locust's processes for the buyers; default: %(default)s",
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        choices=SERVERS,
        default=SERVERS[0],
        help="the HTTP server of the nodes; default: %(default)s",
    )


def _add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        choices=tuple(DATABASES),
        default=POSTGRES,
        help="the database of the shop; default: %(default)s, or that of DATABASE_URL",
    )


def names_parser(kind: str, choices: Collection[str]) -> Parser:
    """Return a parser of comma-separated names, which raises ArgumentTypeError for unknown ones."""

    def parse_names(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            raise argparse.ArgumentTypeError(f"no names in {text!r}: list some, or omit the option")
        if unknown := ", ".join(name for name in names if name not in choices):
            raise argparse.ArgumentTypeError(
                f"unknown {kind}: {unknown}; there are {', '.join(choices)}"
            )
        return names

    return parse_names


def parse_own_file(text: str) -> str:
    """Return the absolute path of a file.

    Raises ArgumentTypeError if the file does not exist, or if its path contains a comma, which
    separates the entries of SHOP_DEMO_STRATEGIES.
    """
    path = Path(text).resolve()
    if not path.is_file() or "," in str(path):
        raise argparse.ArgumentTypeError(f"{text!r} is not a file, or its path contains a comma")
    return str(path)


def exit_code_of(run: Callable[[Console], int]) -> int:
    """Call `run`, print the error that it raises, and return the exit code; see docs/verdicts.md.

    All started processes are stopped before an error is printed.
    """
    end_on(signal.SIGINT)
    end_on_hangup_and_sigterm()
    console = console_on_stdout()
    try:
        return run(console)
    except (StackError, EmbeddedError, ShopUnreachable) as error:
        message = str(error)
    except OSError as error:
        message = explain(error)
    except (RedisError, psycopg.Error) as error:
        message = (
            f"a server failed in the run: {type(error).__name__}: {error}; see its log in var/"
        )
    except KeyboardInterrupt:
        embedded.detach()
        console.print("stopped; everything that was started is stopped too")
        return 130
    embedded.detach()
    console.print(message, style="red", markup=False, soft_wrap=True)
    return 2
