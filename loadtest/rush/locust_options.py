"""The options of a rush on Locust's command line and in its web UI."""

import argparse
import sys
from typing import Any

from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from loadtest.rush.option_parsers import RUSH_OPTIONS
from loadtest.rush.permission import PERMISSION_FLAG, require_permission
from loadtest.stack.client import Shop, ShopUnreachable
from loadtest.target.ours import OurShop
from loadtest.target.target import Target, load

#: Seconds that the shop has to list its strategies for the drop-down of the web UI.
LIST_TIMEOUT_SECONDS = 2


def add_arguments(parser: LocustArgumentParser) -> None:
    """Add the options of a rush.

    Paths, addresses and secrets have no type. They are set on the command line only: the web UI
    neither shows nor accepts them.
    """

    def add(name: str, help_text: str, default: Any = "", **settings: Any) -> None:
        in_web_ui = "type" in settings
        parser.add_argument(
            name, default=default, help=help_text, include_in_web_ui=in_web_ui, **settings
        )

    early_options = _parse_host_and_target()
    if not early_options.target:  # with --target these are refused: other shops lack them
        add(
            "--lock",
            "The strategy that guards the stock",
            "none",
            type=RUSH_OPTIONS["lock"],
            env_var="LOCUST_LOCK",
            choices=_list_strategies(early_options.host),
        )
        add(
            "--hold-ms",
            "Milliseconds between check and decrement",
            0,
            type=RUSH_OPTIONS["hold_ms"],
        )
        add("--product", "The product that they buy", "apple", type=RUSH_OPTIONS["product"])
    add("--stock", "Units on the shelf", 100, type=RUSH_OPTIONS["stock"])
    add("--deadline", "Seconds after which buyers give up", 60.0, type=RUSH_OPTIONS["deadline"])
    add("--target", "A file that says how another shop is bought from: docs/your-shop.md")
    add(
        PERMISSION_FLAG,
        "With --target: the name of the machine, not this one, that you may rush",
        metavar="HOST",
    )
    add("--nodes", "More addresses of the same shop, comma-separated: buyers alternate")
    add("--restock-token", "The shop's SHOP_RESTOCK_TOKEN", env_var="SHOP_RESTOCK_TOKEN")
    add("--history", "Append each buyer's requests and answers to this file, as JSON lines")
    add("--result", "Write the result to this file, as JSON")


def _parse_host_and_target() -> argparse.Namespace:
    """Parse the shop's address and the target, on which the other options depend."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-H", "--host", default="http://127.0.0.1:8000")
    parser.add_argument("--target", default="")
    return parser.parse_known_args(sys.argv[1:])[0]


def _list_strategies(host: str) -> list[str] | None:
    """Return the names of the shop's strategies; None (any name) if no shop answers."""
    try:
        strategies = Shop(host, timeout=LIST_TIMEOUT_SECONDS).strategies()
    except ShopUnreachable:
        return None
    return [strategy["name"] for strategy in strategies]


def hosts(environment: Environment) -> list[str]:
    """Return the addresses of the shop, which the buyers use in turn."""
    options: Any = environment.parsed_options
    addresses = f"{environment.host or ''},{options.nodes}".split(",")
    return [address.strip() for address in addresses if address.strip()]


def load_target(environment: Environment, token: str = "") -> Target:
    """Return the target that --target names, or this project's shop. Raises TargetError.

    A worker has its master's options except for --target: on its machine the file may have
    another path.

    token  the shop's SHOP_RESTOCK_TOKEN; a worker has none, because it opens no sale
    """
    options: Any = environment.parsed_options
    host = environment.host or ""
    path = _parse_host_and_target().target or options.target
    if path:
        return load(path, host)
    shop = Shop(host, token=token)
    return OurShop(shop, lock=options.lock, product=options.product, hold_ms=int(options.hold_ms))


def require_permissions(environment: Environment, buyers: int) -> list[str]:
    """Raise TargetError unless all the addresses may be rushed. Return warnings to print.

    Without --target every address is allowed: the shop opens no sale without its own token.
    """
    options: Any = environment.parsed_options
    if not options.target:
        return []
    warnings = [
        require_permission(host, options.i_may_load, buyers=buyers) for host in hosts(environment)
    ]
    return [warning for warning in warnings if warning]
