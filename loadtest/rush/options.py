"""What Locust can be asked for a rush, on its command line and in its web UI."""

from __future__ import annotations

import argparse
import sys

from locust.argument_parser import LocustArgumentParser

from loadtest.stack.client import Shop, ShopUnreachable


def add_arguments(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--lock",
        env_var="LOCUST_LOCK",
        default="none",
        choices=_strategy_names(),
        help="The strategy that guards the stock",
    )
    parser.add_argument("--stock", type=int, default=100, help="Units on the shelf")
    parser.add_argument(
        "--hold-ms", type=int, default=0, help="Milliseconds between check and decrement"
    )
    parser.add_argument("--product", default="apple", help="What they buy")
    parser.add_argument(
        "--nodes",
        default="",
        help="More addresses of the same shop, comma-separated: buyers alternate between them",
    )
    parser.add_argument(
        "--deadline", type=float, default=60.0, help="Seconds after which buyers give up"
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
        help="Append what each buyer asked and was told to this file, one JSON object a line",
    )
    parser.add_argument(
        "--result", default="", include_in_web_ui=False, help="Write what it came to there, as JSON"
    )


def _strategy_names() -> list[str] | None:
    """The shop's own list, for the drop-down; None (any text) while no shop answers."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-H", "--host", default="http://127.0.0.1:8000")
    host = parser.parse_known_args(sys.argv[1:])[0].host
    try:
        return [strategy["name"] for strategy in Shop(host, timeout=2).strategies()]
    except ShopUnreachable:
        return None
