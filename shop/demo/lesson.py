"""A lesson of a workshop, for the page to project: `/?lesson=5`."""

from __future__ import annotations

import tomllib
from typing import Any

from django.conf import settings

from shop.errors import BadInput

LETTERS = "abcdefgh"


def lesson(asked: str | None) -> dict[str, Any] | None:
    """Number, title, question, options with their letters, and command; never the answer.

    None where no lesson was asked for, or there are none. Raises BadInput for one that is not
    there.
    """
    if not asked or not settings.SHOP_DEMO or not settings.SHOP_DEMO_LESSONS:
        return None
    with open(settings.SHOP_DEMO_LESSONS, "rb") as file:
        listed = {str(one["number"]): one for one in tomllib.load(file)["lesson"]}
    if asked not in listed:
        raise BadInput("unknown lesson", allowed=listed)
    one = listed[asked]
    return {
        **{name: one[name] for name in ("number", "title", "question", "command")},
        "options": list(zip(LETTERS, one["options"], strict=False)),
    }
