"""BUY_RATE_LIMIT: how a rate is written."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from shop.ops.environment import parse_rate
from shop.tests.test_settings import run


@pytest.mark.parametrize(
    ("text", "rate"),
    [("", None), ("3/10s", (3, 10.0)), ("100/0.5s", (100, 0.5)), ("1/86400s", (1, 86_400.0))],
)
def test_a_rate_is_attempts_and_seconds_or_nothing(
    text: str, rate: tuple[int, float] | None
) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        *("3", "3/10", "0/10s", "-3/10s", "3/0s", "3/-1s", "three/10s", "3/10m", "3/86401s"),
        *("3 / 10s", "3/10.0.0s", "3/.s", "3/s", "3/0.0001s", "3/infs", "3/nans", "1/1s2/2s"),
    ],
)
def test_any_other_rate_is_an_error_that_says_how_to_write_it(text: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        parse_rate(text)
    assert str(caught.value) == f"BUY_RATE_LIMIT is {text!r}: write attempts/seconds, as 3/10s"


def test_a_shop_with_a_bad_rate_does_not_start() -> None:
    done = run("-c", "from shop import settings", BUY_RATE_LIMIT="3/10.0.0s")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "django.core.exceptions.ImproperlyConfigured: "
        "BUY_RATE_LIMIT is '3/10.0.0s': write attempts/seconds, as 3/10s"
    )
