"""The options of a rush on Locust's command line and in its web UI."""

import argparse
import sys
from typing import Any

from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from loadtest.rush.bounds import FLAG, RUSH, require_permission
from loadtest.stack.client import Shop, ShopUnreachable
from loadtest.target.ours import OurShop
from loadtest.target.target import Target, load


def add_arguments(parser: LocustArgumentParser) -> None:
    """Paths, addresses and secrets are set on the command line only: the web UI neither shows nor
    takes them."""
    given = _given_before()

    def add(name: str, what: str, default: Any = "", **more: Any) -> None:
        in_web_ui = "type" in more
        parser.add_argument(name, default=default, help=what, include_in_web_ui=in_web_ui, **more)

    if not given.target:  # another shop knows nothing of these: with --target they are refused
        add("--lock", "The strategy that guards the stock", "none", type=RUSH["lock"],
            env_var="LOCUST_LOCK", choices=_strategies(given.host))  # fmt: skip
        add("--hold-ms", "Milliseconds between check and decrement", 0, type=RUSH["hold_ms"])
        add("--product", "What they buy", "apple", type=RUSH["product"])
    add("--stock", "Units on the shelf", 100, type=RUSH["stock"])
    add("--deadline", "Seconds after which buyers give up", 60.0, type=RUSH["deadline"])
    add("--target", "A file that says how another shop is bought from: docs/your-shop.md")
    add(FLAG, "With --target: the name of the machine, not this one, that you may rush",
        metavar="HOST")  # fmt: skip
    add("--nodes", "More addresses of the same shop, comma-separated: buyers alternate")
    add("--restock-token", "The shop's SHOP_RESTOCK_TOKEN", env_var="SHOP_RESTOCK_TOKEN")
    add("--history", "Append each buyer's requests and answers to this file, a JSON object a line")
    add("--result", "Write the result to this file, as JSON")


def _given_before() -> argparse.Namespace:
    """The shop's address and the target, before the arguments can be parsed."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-H", "--host", default="http://127.0.0.1:8000")
    parser.add_argument("--target", default="")
    return parser.parse_known_args(sys.argv[1:])[0]


def _strategies(host: str) -> list[str] | None:
    """The shop's own list, for the drop-down; None (any name) while no shop answers."""
    try:
        return [strategy["name"] for strategy in Shop(host, timeout=2).strategies()]
    except ShopUnreachable:
        return None


def hosts(environment: Environment) -> list[str]:
    """The addresses that the buyers ask, in turn."""
    options: Any = environment.parsed_options
    given = f"{environment.host or ''},{options.nodes}"
    return [host.strip() for host in given.split(",") if host.strip()]


def target_of(environment: Environment, token: str = "") -> Target:
    """The target that --target names; this project's shop without it. Raises TargetError.

    A worker has its master's options, but for this one: elsewhere the file may have another path.

    token  the shop's SHOP_RESTOCK_TOKEN; a worker has none, it opens no sale
    """
    options: Any = environment.parsed_options
    host = environment.host or ""
    if path := _given_before().target or options.target:
        return load(path, host)
    shop = Shop(host, token=token)
    return OurShop(shop, lock=options.lock, product=options.product, hold_ms=int(options.hold_ms))


def permissions(environment: Environment, buyers: int) -> list[str]:
    """Raise TargetError unless all the addresses may be rushed. Returns warnings to print.

    Without --target the shop asks for its own token, and opens no sale without it.
    """
    options: Any = environment.parsed_options
    asked = hosts(environment) if options.target else []
    warnings = (require_permission(one, options.i_may_load, buyers=buyers) for one in asked)
    return [warning for warning in warnings if warning]
