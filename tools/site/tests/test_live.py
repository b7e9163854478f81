"""Every move of every strategy again, from the live shop, compared with the recording."""

from __future__ import annotations

import pytest

from tools.site import recording
from tools.site.tests.test_recorded import SOME, test_what_is_recorded_is_what_the_shop_does


@pytest.mark.parametrize(
    "lock", [name for name in recording.strategies() if name not in (*SOME, "reserve")]
)
def test_the_shop_does_what_is_recorded(lock: str) -> None:
    test_what_is_recorded_is_what_the_shop_does((lock,))
