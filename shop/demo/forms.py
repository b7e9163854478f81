"""What the page's forms ask for, each value within bounds that a browser keeps by itself."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from shop.api.parameters import integer_of
from shop.errors import BadInput
from shop.strategies import STRATEGIES, Strategy

#: Field -> its least and its largest value.
BOUNDS = {
    "buyers": (1, 20_000),
    "stock": (0, 10_000),
    "hold_ms": (0, settings.SHOP_LONGEST_HOLD_MS),
}
#: A strategy's `needs` -> what to set if its servers are missing.
MISSING = {
    "REDLOCK_URLS": "needs five more Redis servers: REDLOCK_URLS",
    "ZOOKEEPER_HOSTS": "needs ZooKeeper: ZOOKEEPER_HOSTS",
}


def choices() -> list[tuple[Strategy, str]]:
    """Every strategy with the reason why it cannot be chosen here, or an empty text."""
    return [(one, _missing(one)) for one in STRATEGIES.values()]


def _missing(strategy: Strategy) -> str:
    if not strategy.needs or getattr(settings, strategy.needs):
        return ""
    return MISSING[strategy.needs]


def parse_form(request: HttpRequest, *fields: str) -> dict[str, Any]:
    """The strategy, and these fields. Raises BadInput."""
    given = request.POST.dict()
    choosable = [one.name for one, missing in choices() if not missing]
    if given.get("lock") not in choosable:
        raise BadInput("unknown lock", allowed=choosable)
    bounded = {
        name: integer_of(given, name, default=None, least=least, most=most)
        for name, (least, most) in BOUNDS.items()
        if name in fields
    }
    return {"lock": given["lock"], **bounded}
