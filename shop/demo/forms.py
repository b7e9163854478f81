"""What the page's forms may ask for; the messages stand beside their fields."""

from __future__ import annotations

from django import forms
from django.conf import settings

from shop.strategies import STRATEGIES, Strategy

MOST_BUYERS = 1000
MOST_STOCK = 10_000


def available() -> list[Strategy]:
    """Every strategy whose servers are there."""
    return [one for one in STRATEGIES.values() if not one.needs or getattr(settings, one.needs)]


def _choices() -> list[tuple[str, str]]:
    return [(one.name, one.title) for one in available()]


def _whole_number(least: int, most: int) -> forms.IntegerField:
    message = f"A whole number from {least} to {most}."
    messages = dict.fromkeys(("required", "invalid", "min_value", "max_value"), message)
    return forms.IntegerField(min_value=least, max_value=most, error_messages=messages)


class LockForm(forms.Form):
    """Which strategy."""

    lock = forms.ChoiceField(
        choices=_choices,
        error_messages=dict.fromkeys(("required", "invalid_choice"), "Choose one of the list."),
    )


class RushForm(LockForm):
    """A rush."""

    buyers = _whole_number(1, MOST_BUYERS)
    stock = _whole_number(0, MOST_STOCK)
    hold_ms = _whole_number(0, settings.SHOP_LONGEST_HOLD_MS)
