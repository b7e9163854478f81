"""What Locust can be asked for a rush, on its command line and in its web UI."""

from __future__ import annotations

import argparse
import sys

from locust.argument_parser import LocustArgumentParser

from loadtest.rush.form import RUSH
from loadtest.stack.client import Shop, ShopUnreachable
from loadtest.target.hosts import FLAG


def add_arguments(parser: LocustArgumentParser) -> None:
    given = _given_before()
    if not given.target:
        _add_what_our_shop_takes(parser, str(given.host))
    parser.add_argument("--stock", type=RUSH["stock"], default=100, help="Units on the shelf")
    parser.add_argument(
        "--deadline",
        type=RUSH["deadline"],
        default=60.0,
        help="Seconds after which buyers give up",
    )
    _add_what_no_form_may_set(parser)


def _add_what_our_shop_takes(parser: LocustArgumentParser, host: str) -> None:
    """Another shop knows nothing of these: with --target they are refused."""
    parser.add_argument(
        "--lock",
        env_var="LOCUST_LOCK",
        default="none",
        type=RUSH["lock"],
        choices=strategy_names(host),
        help="The strategy that guards the stock",
    )
    parser.add_argument(
        "--hold-ms",
        type=RUSH["hold_ms"],
        default=0,
        help="Milliseconds between check and decrement",
    )
    parser.add_argument("--product", type=RUSH["product"], default="apple", help="What they buy")


def _add_what_no_form_may_set(parser: LocustArgumentParser) -> None:
    """Paths, addresses and secrets: the web UI neither shows nor takes them (form.parse)."""
    parser.add_argument(
        "--target",
        default="",
        include_in_web_ui=False,
        help="A file that says how another shop is bought from: docs/your-shop.md",
    )
    parser.add_argument(
        FLAG,
        default="",
        metavar="HOST",
        include_in_web_ui=False,
        help="With --target: the name of the machine, not this one, that you may rush",
    )
    parser.add_argument(
        "--nodes",
        default="",
        include_in_web_ui=False,
        help="More addresses of the same shop, comma-separated: buyers alternate between them",
    )
    parser.add_argument(
        "--web-allowed-hosts",
        env_var="LOCUST_ALLOWED_HOSTS",
        default="",
        include_in_web_ui=False,
        help="Names under which a browser may open the web UI, comma-separated and without ports, "
        "beside this machine's own",
    )
    parser.add_argument(
        "--restock-token",
        env_var="SHOP_RESTOCK_TOKEN",
        default="",
        include_in_web_ui=False,
        help="The shop's SHOP_RESTOCK_TOKEN",
    )
    parser.add_argument(
        "--stay",
        action="store_true",
        include_in_web_ui=False,
        help="Keep the buyers for another rush (POST /rush of the web UI)",
    )
    parser.add_argument(
        "--history",
        default="",
        include_in_web_ui=False,
        help="Append each buyer's requests and answers to this file, one JSON object a line",
    )
    parser.add_argument(
        "--result", default="", include_in_web_ui=False, help="Write what it came to there, as JSON"
    )


def _given_before() -> argparse.Namespace:
    """The shop's address and the target, before the arguments can be parsed."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-H", "--host", default="http://127.0.0.1:8000")
    parser.add_argument("--target", default="")
    return parser.parse_known_args(sys.argv[1:])[0]


def strategy_names(host: str) -> list[str] | None:
    """The shop's own list, for the drop-down; None (any name) while no shop answers."""
    try:
        return [strategy["name"] for strategy in Shop(host, timeout=2).strategies()]
    except ShopUnreachable:
        return None
