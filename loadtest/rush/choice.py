"""Which shop a Locust is to rush, by its options, and whether it may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locust.env import Environment

from loadtest.stack.client import Shop
from loadtest.target.hosts import require_permission
from loadtest.target.loading import load
from loadtest.target.ours import OurShop
from loadtest.target.target import Target


def options_of(environment: Environment) -> Any:
    assert environment.parsed_options is not None
    return environment.parsed_options


def hosts(environment: Environment) -> list[str]:
    """The addresses that the buyers ask, in turn."""
    given = [environment.host or "", *str(options_of(environment).nodes).split(",")]
    return [host.strip() for host in given if host.strip()]


def target_of(environment: Environment, token: str) -> Target:
    """The target that --target names; this project's shop without it. Raises TargetError.

    token  the shop's SHOP_RESTOCK_TOKEN; a worker has none, it opens no sale
    """
    options = options_of(environment)
    host = environment.host or ""
    if options.target:
        return load(options.target, host)
    shop = Shop(host, token=token)
    return OurShop(shop, lock=options.lock, product=options.product, hold_ms=int(options.hold_ms))


#: The options that decide what a buyer asks, and whom.
SHARED = ("target", "nodes", "lock", "product", "hold_ms")


def shared(environment: Environment) -> dict[str, Any]:
    """What a worker has to know of the master's options."""
    options = vars(options_of(environment))
    return {
        "host": environment.host,
        "options": {name: options[name] for name in SHARED if name in options},
    }


def take(environment: Environment, message: Mapping[str, Any], *, own_target: str) -> None:
    """Take the master's options, in a worker. A --target of its own wins: on another machine the
    file may be in another folder."""
    environment.host = message["host"]
    options = vars(options_of(environment))
    options.update(message["options"])
    options["target"] = own_target or message["options"]["target"]


def permissions(environment: Environment, buyers: int) -> list[str]:
    """Raise TargetError unless all the addresses may be rushed. Returns warnings to print.

    Without --target the shop asks for its own token, and without that opens no sale.
    """
    options = options_of(environment)
    if not options.target:
        return []
    asked = [
        require_permission(host, options.i_may_load, buyers=buyers) for host in hosts(environment)
    ]
    return [warning for warning in asked if warning]
