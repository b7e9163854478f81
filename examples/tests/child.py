"""A process that buys: python -m examples.tests.child MODULE PRODUCT TTL.

It reads one request from its standard input, as JSON. With `buyers` that many buy at once, else the
one of this `name`, who waits before the first UPDATE for a further line.
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


def _say(message: Any) -> None:
    print(json.dumps(message), flush=True)


def _main(module: str, product: int, ttl: float) -> None:
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
        """Buy, and retry while the shop is busy, as one of many buyers on a slow machine must."""
        name = f"{os.getpid()}-{number}"
        while (outcome := buy(name)) == "TryAgain":
            pass
        return outcome

    stops = ["UPDATE"]

    def stop(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if stops and sql.startswith(stops[0]):
            stops.clear()
            _say("stopped")
            sys.stdin.readline()
        return execute(sql, *rest)

    _say("ready")
    request = json.loads(sys.stdin.readline())
    if "buyers" not in request:
        with connection.execute_wrapper(stop):
            _say(buy(request["name"]))
        return
    _say(rush(buy_until_answered, request["buyers"]).returned)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
