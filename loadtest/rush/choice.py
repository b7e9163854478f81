"""Which shop a Locust is to rush, by its options, and whether it may."""

from __future__ import annotations

from typing import Any

from locust.env import Environment

from loadtest.stack.client import Shop
from loadtest.target.hosts import require_permission
from loadtest.target.loading import load
from loadtest.target.ours import OurShop
from loadtest.target.target import Target


def _options(environment: Environment) -> Any:
    assert environment.parsed_options is not None
    return environment.parsed_options


def hosts(environment: Environment) -> list[str]:
    """The addresses that the buyers ask, in turn."""
    given = [environment.host or "", *str(_options(environment).nodes).split(",")]
    return [host.strip() for host in given if host.strip()]


def target_of(environment: Environment) -> Target:
    """The target that --target names; this project's shop without it. Raises TargetError."""
    options = _options(environment)
    host = environment.host or ""
    if options.target:
        return load(options.target, host)
    shop = Shop(host, token=options.restock_token)
    return OurShop(shop, lock=options.lock, product=options.product, hold_ms=int(options.hold_ms))


def permissions(environment: Environment, buyers: int) -> list[str]:
    """Raise TargetError unless all the addresses may be rushed. Returns warnings to print.

    Without --target the shop asks for its own token, and without that opens no sale.
    """
    options = _options(environment)
    if not options.target:
        return []
    asked = [
        require_permission(host, options.i_may_load, buyers=buyers) for host in hosts(environment)
    ]
    return [warning for warning in asked if warning]
