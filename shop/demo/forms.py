"""What the page's forms accept; each message is shown next to its field."""

from __future__ import annotations

from django import forms
from django.conf import settings

from shop.strategies import STRATEGIES, Strategy

MOST_BUYERS = 20_000
MOST_STOCK = 10_000


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


def _choosable() -> list[tuple[str, str]]:
    return [(one.name, one.title) for one, missing in choices() if not missing]


def _whole_number(least: int, most: int) -> forms.IntegerField:
    message = f"A whole number from {least} to {most}."
    messages = dict.fromkeys(("required", "invalid", "min_value", "max_value"), message)
    return forms.IntegerField(min_value=least, max_value=most, error_messages=messages)


class LockForm(forms.Form):
    """Which strategy."""

    lock = forms.ChoiceField(
        choices=_choosable,
        error_messages=dict.fromkeys(("required", "invalid_choice"), "Choose one of the list."),
    )


class RushForm(LockForm):
    """A rush."""

    buyers = _whole_number(1, MOST_BUYERS)
    stock = _whole_number(0, MOST_STOCK)
    hold_ms = _whole_number(0, settings.SHOP_LONGEST_HOLD_MS)
