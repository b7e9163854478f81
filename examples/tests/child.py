"""A process that buys: python -m examples.tests.child MODULE PRODUCT TTL.

MODULE is checkout or no_lock, PRODUCT the id of the product, TTL the seconds of checkout's lock.
The process reads one request from its standard input, as JSON. With a number of `buyers`, that
many buyers buy at the same moment, until each has an order or SoldOut. With the `name` of a buyer,
this buyer stops before the first UPDATE until another line arrives. The process prints `ready`,
`stopped` and the outcomes as JSON.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import django
import redis
from django.db import connection

from testing import rush


def _print_json(message: Any) -> None:
    print(json.dumps(message), flush=True)


def _main(module: str, product: int, ttl: float) -> None:
    """Buy as the request on standard input says, and print the outcome as JSON."""
    django.setup()
    example = import_module(f"examples.{module}")
    arguments: dict[str, Any] = {"product": product}
    if module == "checkout":
        example.LOCK_TTL_SECONDS = ttl
        arguments["client"] = redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=5)

    def buy(name: str) -> str:
        try:
            return f"order {example.buy(**arguments, buyer=name, key=name).pk}"
        except (example.SoldOut, example.TryAgain) as error:
            return type(error).__name__

    def buy_until_answered(number: int) -> str:
        """Retry while the lock is taken: on a busy machine, one wait for it may be too short."""
        name = f"{os.getpid()}-{number}"
        while (outcome := buy(name)) == "TryAgain":
            pass
        return outcome

    has_stopped = False

    # Called instead of each statement: waits for a line of input before the first UPDATE.
    def stop_at_update(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        nonlocal has_stopped
        if sql.startswith("UPDATE") and not has_stopped:
            has_stopped = True
            _print_json("stopped")
            sys.stdin.readline()
        return execute(sql, *rest)

    _print_json("ready")
    request = json.loads(sys.stdin.readline())
    if "buyers" not in request:
        with connection.execute_wrapper(stop_at_update):
            _print_json(buy(request["name"]))
        return
    _print_json(rush(buy_until_answered, request["buyers"]).returned)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
