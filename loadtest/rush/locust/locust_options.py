"""The options of a rush on Locust's command line and in its web UI.

In a rush, many buyers send their purchases at the same instant.
"""

import argparse
import os
import sys
from dataclasses import replace
from typing import Any

from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from loadtest.rush.option_parsers import RUSH_OPTION_PARSERS, Parser
from loadtest.rush.permission import PERMISSION_FLAG, require_permission
from loadtest.rush.plan import RushPlan
from loadtest.stack.client import Shop, ShopUnreachable
from loadtest.target.ours import OurShop
from loadtest.target.target import Target, load_target_file

DEFAULT_HOST = "http://127.0.0.1:8000"
#: Seconds that the shop has to list its strategies for the drop-down of the web UI.
LIST_TIMEOUT_SECONDS = 2


def add_arguments(parser: LocustArgumentParser) -> None:
    """Add the options of a rush, in which many buyers send their purchases at the same instant.

    Paths, addresses and secrets can be set on the command line only. The web UI neither shows nor
    accepts them.
    """

    # The web UI shows the options that add_shown() adds, and none of those of add_hidden().
    def add_shown(name: str, help_text: str, default: Any, parse: Parser, **settings: Any) -> None:
        parser.add_argument(name, default=default, help=help_text, type=parse, **settings)

    def add_hidden(name: str, help_text: str, **settings: Any) -> None:
        parser.add_argument(name, default="", help=help_text, include_in_web_ui=False, **settings)

    host_and_target = _parse_host_and_target()
    # Only this project's shop has strategies and products. With --target these options are unknown.
    if not host_and_target.target:
        add_shown(
            "--lock",
            "The strategy that guards the stock",
            RushPlan.lock,
            RUSH_OPTION_PARSERS["lock"],
            env_var="LOCUST_LOCK",
            choices=_list_strategies(host_and_target.host),
        )
        add_shown(
            "--hold-ms",
            "Milliseconds between check and decrement",
            RushPlan.hold_ms,
            RUSH_OPTION_PARSERS["hold_ms"],
        )
        add_shown(
            "--product",
            "The product that the buyers buy",
            RushPlan.product,
            RUSH_OPTION_PARSERS["product"],
        )
    add_shown("--stock", "Units on the shelf", RushPlan.stock, RUSH_OPTION_PARSERS["stock"])
    add_shown(
        "--deadline",
        "Seconds after which buyers give up",
        RushPlan.deadline,
        RUSH_OPTION_PARSERS["deadline"],
    )
    add_hidden("--target", "A file that describes how to buy from another shop: docs/your-shop.md")
    add_hidden(
        PERMISSION_FLAG,
        "With --target: the host name of another machine that you may rush",
        metavar="HOST",
    )
    add_hidden("--nodes", "More addresses of the same shop, comma-separated: buyers alternate")
    add_hidden("--restock-token", "The shop's SHOP_RESTOCK_TOKEN", env_var="SHOP_RESTOCK_TOKEN")
    add_hidden("--history", "Append each buyer's requests and answers to this file, as JSON lines")
    add_hidden("--result", "Write the result to this file, as JSON")


def _parse_host_and_target() -> argparse.Namespace:
    """Parse only the options --host and --target of sys.argv.

    They decide which other options exist, and what the choices of --lock are. As in Locust,
    LOCUST_HOST is the default of --host.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    default_host = os.environ.get("LOCUST_HOST") or DEFAULT_HOST
    parser.add_argument("-H", "--host", default=default_host)
    parser.add_argument("--target", default="")
    return parser.parse_known_args(sys.argv[1:])[0]


def _list_strategies(host: str) -> list[str] | None:
    """Return the names of the shop's strategies.

    If no shop answers, return None, so that --lock accepts any name.
    """
    try:
        strategies = Shop(host, timeout=LIST_TIMEOUT_SECONDS).strategies()
    except ShopUnreachable:
        return None
    return [strategy["name"] for strategy in strategies]


def build_plan(environment: Environment, restock_token: str = "") -> RushPlan:
    """Return the plan of a rush (many buyers at the same instant) from Locust's options.

    Locust's option `host` is the first address, and `num_users` is the number of buyers.

    restock_token  the value of --restock-token. LocustRushes has removed it from the options,
                   because Locust sends all options to its workers
    """
    options: Any = environment.parsed_options
    addresses = f"{environment.host or DEFAULT_HOST},{options.nodes}".split(",")
    plan = RushPlan(
        hosts=[address.strip() for address in addresses if address.strip()],
        buyers=max(1, int(options.num_users or 1)),
        stock=int(options.stock),
        deadline=float(options.deadline),
        target=options.target,
        i_may_load=options.i_may_load,
        restock_token=restock_token,
        history=options.history,
        result=options.result,
    )
    if plan.target:
        return plan  # with --target, Locust has no options for the strategy and the product
    return replace(plan, lock=options.lock, hold_ms=int(options.hold_ms), product=options.product)


def load_target(plan: RushPlan) -> Target:
    """Return the target of a rush: the third-party shop, or this project's shop, that is tested.

    The --target of this process has priority over the plan's target, because a worker may run on
    another machine, where the file has another path. Raises TargetError.
    """
    path = _parse_host_and_target().target or plan.target
    if path:
        return load_target_file(path, plan.hosts[0])
    shop = Shop(plan.hosts[0], token=plan.restock_token)
    return OurShop(shop, lock=plan.lock, product=plan.product, hold_ms=plan.hold_ms)


def require_permissions(plan: RushPlan) -> list[str]:
    """Raise TargetError unless a rush (many buyers at one instant) is allowed on all addresses.

    Return warnings to print. Without --target every address is allowed, because this project's shop
    opens a sale only if the request has the shop's secret token.
    """
    if not plan.target:
        return []
    warnings = [
        require_permission(host, plan.i_may_load, buyers=plan.buyers) for host in plan.hosts
    ]
    return [warning for warning in warnings if warning]
