"""A lesson of a workshop, for the page to project: `/?lesson=5`, and `/?lesson=5&answer`."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from shop.errors import BadInput

LETTERS = "abcdefgh"


def lesson(asked: Mapping[str, str]) -> dict[str, Any] | None:
    """Number, title, question, options with their letters, and command, the texts as HTML. With
    `answer` the right letter and why; with `lock`, which fills the form of the page in, no command.

    None where no lesson was asked for, or there are none. Raises BadInput for one that is not
    there.
    """
    number = asked.get("lesson")
    if not number or not settings.SHOP_DEMO_LESSONS:
        return None
    file = Path(settings.SHOP_DEMO_LESSONS)
    listed = {str(one["number"]): one for one in tomllib.loads(file.read_text("utf-8"))["lesson"]}
    if number not in listed:
        raise BadInput("unknown lesson", allowed=listed)
    one = listed[number]
    answered = "answer" in asked
    why = ""
    if answered:
        text = (file.parent / "lessons" / f"{one['slug']}.md").read_text("utf-8")
        why = text.partition("\n## Explain\n")[2].partition("\n## ")[0].strip()
    return {
        **{name: one[name] for name in ("number", "title")},
        "question": _with_code(one["question"]),
        "command": "" if answered or "lock" in asked else one["command"],
        "options": list(zip(LETTERS, map(_with_code, one["options"]), strict=False)),
        "answer": one["answer"] if answered else "",
        "why": _with_code(why),
    }


def _with_code(text: str) -> SafeString:
    """As HTML: what stands between backticks is code."""
    return mark_safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))
