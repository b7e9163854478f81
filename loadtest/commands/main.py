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
from loadtest.commands.output import set_up_console
from loadtest.commands.rushes import RushOptions
from loadtest.expected import DATABASE_FAULTS, EXPECTED
from loadtest.faults import FAULTS
from loadtest.load.plan import (
    MAX_ARRIVALS_PER_SECOND,
    MAX_CLIENTS,
    MAX_SECONDS,
    LoadOptions,
)
from loadtest.rush.option_parsers import (
    RUSH_OPTION_PARSERS,
    Parser,
    make_number_parser,
    make_whole_number_parser,
    parse_buyer_count,
)
from loadtest.rush.permission import PERMISSION_FLAG
from loadtest.rush.plan import RushPlan
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.databases import DATABASES, POSTGRES
from loadtest.stack.stack import NODE_NAMES, SERVERS, StackError
from servers import embedded
from servers.embedded import EmbeddedError
from servers.server_errors import advise_on_error
from servers.signals import end_on, end_on_hangup_and_sigterm

#: The verdicts that the option --expect accepts.
EXPECTABLE_VERDICTS = ("exact", "oversold")
#: The largest number that make_number_parser() accepts.
MAX_SEED = 10**12 - 1
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
    """Run the command in the arguments. Return its exit code; see run_printing_errors()."""
    options = vars(parse(arguments, description))
    run = COMMANDS[options.pop("command")]
    return run_printing_errors(lambda console: run(console, **options))


def parse(arguments: Sequence[str], description: str | None) -> argparse.Namespace:
    """Return `command`, the name of the command, and the keyword arguments of its function.

    The default command is `demo`. A wrong argument ends the process with a message and exit code 2.
    """
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=description)
    # argparse has no public type for this object, to which commands are added.
    subparsers: Any = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_demo_command(subparsers)
    _add_matrix_command(subparsers)
    _add_faults_command(subparsers)
    _add_chaos_command(subparsers)
    _add_target_command(subparsers)
    _add_load_command(subparsers)
    _add_serve_command(subparsers)
    has_command = bool(arguments) and not arguments[0].startswith("-")
    wants_help = bool(arguments) and arguments[0] in ("-h", "--help")
    if not has_command and not wants_help:
        arguments = ["demo"] + list(arguments)
    return parser.parse_args(arguments)


def _add_demo_command(subparsers: Any) -> None:
    summary = "the same rush under each lock, with a verdict each (the default)"
    parser = _create_parser(subparsers, "demo", summary)
    _add_lock_option(parser, RushOptions().locks)
    _add_rush_options(parser)


def _add_matrix_command(subparsers: Any) -> None:
    summary = "every strategy under the rush, each compared with its expected verdict"
    parser = _create_parser(subparsers, "matrix", summary)
    _add_lock_option(parser)
    _add_rush_options(parser)


def _add_faults_command(subparsers: Any) -> None:
    summary = "every fault, injected on real servers; each verdict compared with the expected one"
    parser = _create_parser(subparsers, "faults", summary)
    _add_lock_option(parser)
    parser.add_argument(
        "--fault",
        dest="faults",
        type=make_names_parser("fault", FAULTS),
        default=(),
        metavar="NAMES",
        help="faults, comma-separated; default: all of them, or on a database other than "
        f"{POSTGRES}: {', '.join(DATABASE_FAULTS)}",
    )
    _add_server_option(parser)
    parser.add_argument(
        "--database",
        # Faults are injected only on servers that the run starts itself.
        choices=[name for name, database in DATABASES.items() if not database.needs_url],
        default=POSTGRES,
        help="the database of the shop; default: %(default)s",
    )


def _add_chaos_command(subparsers: Any) -> None:
    summary = "random faults at random times during rushes of the sound strategies"
    parser = _create_parser(subparsers, "chaos", summary)
    parser.add_argument(
        "--minutes",
        type=make_number_parser(0.01, 24 * 60),
        default=2.0,
        metavar="MINUTES",
        help="length of the run; default: 2",
    )
    parser.add_argument(
        "--seed",
        type=make_whole_number_parser(0, MAX_SEED),
        metavar="N",
        help="repeats the faults of an earlier run, which printed this seed",
    )


def _add_target_command(subparsers: Any) -> None:
    summary = "the rush against a shop of your own: target my_shop.py --host http://127.0.0.1:8001"
    parser = _create_parser(subparsers, "target", summary)
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
    _add_buyers_option(parser, RushPlan.buyers)
    _add_stock_option(parser, RushPlan.stock)
    parser.add_argument(
        "--deadline",
        type=RUSH_OPTION_PARSERS["deadline"],
        default=RushPlan.deadline,
        metavar="SECONDS",
        help="buyers give up after this time; default: 60",
    )
    parser.add_argument(
        "--repeat",
        type=make_whole_number_parser(1, 1000),
        default=10,
        metavar="N",
        help="the maximum number of rushes; default: 10",
    )
    parser.add_argument(
        PERMISSION_FLAG,
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


def _add_load_command(subparsers: Any) -> None:
    summary = "sustained sales: buyers who keep coming, at a rate or one purchase after the other"
    parser = _create_parser(subparsers, "load", summary)
    defaults = LoadOptions()
    _add_lock_option(parser, defaults.locks)
    _add_stock_option(parser, defaults.stock)
    _add_hold_option(parser)
    _add_process_options(parser, defaults)
    parser.add_argument(
        "--clients",
        type=make_whole_number_parser(1, MAX_CLIENTS),
        default=defaults.clients,
        metavar="N",
        help="closed model: each client buys again and again; default: %(default)s",
    )
    parser.add_argument(
        "--arrivals-per-second",
        type=make_number_parser(0.1, MAX_ARRIVALS_PER_SECOND),
        default=defaults.arrivals_per_second,
        metavar="RATE",
        help="open model: buyers arrive at this rate, even if earlier ones still wait",
    )
    parser.add_argument(
        "--seconds",
        type=make_number_parser(0.5, MAX_SECONDS),
        default=defaults.seconds,
        metavar="SECONDS",
        help="time that each strategy is measured in each round; default: 10",
    )
    parser.add_argument(
        "--products",
        type=make_whole_number_parser(1, 1000),
        default=defaults.products,
        metavar="N",
        help="products on sale; 1: one hot product; default: %(default)s",
    )
    parser.add_argument(
        "--skew",
        type=make_number_parser(0, 5),
        default=defaults.skew,
        metavar="EXPONENT",
        help="Zipf's exponent of the demand for --products, 0 for equal shares; "
        "default: %(default)s",
    )
    parser.add_argument(
        "--rounds",
        type=make_whole_number_parser(1, 100),
        default=defaults.rounds,
        metavar="N",
        help="rounds; each strategy is measured once in each; default: %(default)s",
    )


def _add_serve_command(subparsers: Any) -> None:
    summary = "the shop with its page, and Locust's web UI, left running"
    parser = _create_parser(subparsers, "serve", summary)
    defaults = RushOptions()
    parser.add_argument(
        "--lock",
        dest="locks",
        type=make_names_parser("lock", EXPECTED),
        default=(),
        metavar="NAMES",
        help="strategies, comma-separated, for whose steps a link is printed; default: none",
    )
    _add_buyers_option(parser, defaults.buyers)
    _add_process_options(parser, defaults)
    parser.add_argument(
        "--mine",
        dest="own_strategy_file",
        type=parse_strategy_file,
        default=argparse.SUPPRESS,  # argparse would pass "" to the parser, which refuses it
        metavar="FILE",
        help="a strategy of yours, which the page shows as the lock `mine`",
    )
    _add_server_option(parser)
    _add_database_option(parser)


def _create_parser(subparsers: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=summary, description=summary, allow_abbrev=False
    )
    return parser


def _add_lock_option(parser: argparse.ArgumentParser, default: Sequence[str] = ()) -> None:
    parser.add_argument(
        "--lock",
        dest="locks",
        type=make_names_parser("lock", EXPECTED),
        default=default,
        metavar="NAMES",
        help=f"strategies, comma-separated; default: {','.join(default) or 'all'}",
    )


def _add_rush_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `demo` and `matrix` have in common."""
    defaults = RushOptions()
    _add_buyers_option(parser, defaults.buyers)
    _add_stock_option(parser, defaults.stock)
    _add_hold_option(parser)
    _add_process_options(parser, defaults)
    _add_server_option(parser)
    _add_database_option(parser)


def _add_buyers_option(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--buyers",
        type=parse_buyer_count,
        default=default,
        metavar="N",
        help="buyers of a rush; default: %(default)s",
    )


def _add_stock_option(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--stock",
        type=RUSH_OPTION_PARSERS["stock"],
        default=default,
        metavar="N",
        help="units on the shelf; default: %(default)s",
    )


def _add_hold_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hold-ms",
        type=RUSH_OPTION_PARSERS["hold_ms"],
        default=0,
        metavar="MS",
        help="milliseconds between check and decrement; default: 0",
    )


def _add_process_options(
    parser: argparse.ArgumentParser, defaults: RushOptions | LoadOptions
) -> None:
    parser.add_argument(
        "--nodes",
        type=make_whole_number_parser(1, len(NODE_NAMES)),
        default=defaults.nodes,
        metavar="N",
        help="application servers; default: %(default)s",
    )
    parser.add_argument(
        "--workers",
        type=make_whole_number_parser(1, 16),
        default=defaults.workers,
        metavar="N",
        help="processes of each node; default: %(default)s",
    )
    parser.add_argument(
        "--locust-workers",
        type=make_whole_number_parser(1, 16),
        default=defaults.locust_workers,
        metavar="N",
        help="Locust's processes for the buyers; default: %(default)s",
    )


def _add_server_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        choices=SERVERS,
        default=SERVERS[0],
        help="the HTTP server of the nodes; default: %(default)s",
    )


def _add_database_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        choices=tuple(DATABASES),
        default=POSTGRES,
        help="the database of the shop; default: %(default)s, or that of DATABASE_URL",
    )


def make_names_parser(kind: str, choices: Collection[str]) -> Parser:
    """Return a parser of comma-separated names.

    The parser raises ArgumentTypeError if a text has no name or an unknown one.

    kind     the word for such a name in the error message: `lock` or `fault`
    choices  the known names
    """

    def parse_names(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            raise argparse.ArgumentTypeError(f"no names in {text!r}: list some, or omit the option")
        if unknown_names := ", ".join(name for name in names if name not in choices):
            raise argparse.ArgumentTypeError(
                f"unknown {kind}: {unknown_names}; there are {', '.join(choices)}"
            )
        return names

    return parse_names


def parse_strategy_file(text: str) -> str:
    """Return the absolute path of the file of a strategy.

    Raises ArgumentTypeError if the file does not exist, or if its path contains a comma, which
    separates the entries of SHOP_DEMO_STRATEGIES.
    """
    path = Path(text).resolve()
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file: name an existing one")
    if "," in str(path):
        raise argparse.ArgumentTypeError(f"{str(path)!r} contains a comma: rename or move the file")
    return str(path)


def run_printing_errors(run: Callable[[Console], int]) -> int:
    """Call `run` with a console, and return the exit code. Print expected errors.

    Expected errors are those of servers, of third-party shops and of files. Before they are
    printed, all started processes are stopped. Any other exception is raised.

    The exit code is that of `run`, 2 after an expected error, or 130 after Ctrl-C; see
    docs/verdicts.md. From this call on, SIGINT, SIGTERM and SIGHUP raise an exception that ends
    this process.
    """
    end_on(signal.SIGINT)
    end_on_hangup_and_sigterm()
    console = set_up_console()
    try:
        return run(console)
    except (StackError, EmbeddedError, ShopUnreachable) as error:
        message = str(error)
    except OSError as error:
        message = advise_on_error(error)
    except (RedisError, psycopg.Error) as error:
        message = (
            f"a server failed during the run: {type(error).__name__}: {error}; see its log in var/"
        )
    except KeyboardInterrupt:
        embedded.detach()
        console.print("stopped; everything that was started is stopped too")
        return 130
    embedded.detach()
    console.print(message, style="red", markup=False, soft_wrap=True)
    return 2
