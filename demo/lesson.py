"""A lesson of the workshop on the page: `/?lesson=5`, and `/?lesson=5&answer` with the answer.

A lesson has a multiple-choice question. The participants vote on its options before they see the
answer. The URL contains the number of votes for each option, as `votes=3,9,1,2` or as one parameter
`votes` for each option.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import QueryDict
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from shop.errors import BadInput

LETTERS = "abcdefgh"
MAX_VOTES_OF_AN_OPTION = 999
#: Parameters of the URL that set the lesson and prefill the page's forms. The form for the votes
#: sends them again, so that they are kept.
PRESETS = ("lesson", "lock", "buyers", "stock", "hold_ms", "answer")


def read_lesson(query: QueryDict) -> dict[str, Any] | None:
    """Return the lesson of the workshop for a URL with `lesson`, with its texts as HTML.

    Return None if the URL has no parameter `lesson`. Also return None if SHOP_DEMO_LESSONS, the
    path of the file with the lessons, is empty.

    query     the URL's parameters, such as `lesson=5`

    Besides number, title and question, the lesson has these fields:

    options   letter, text and votes of each option of the question; before the vote the votes are
              None
    voters    the sum of the votes
    command   the shell command that shows the answer. Empty if the URL has `answer`. Also empty if
              the URL has `lock`, because a form of the page then shows the answer
    answer    the letter of the right option. Empty without the parameter `answer`
    why       the explanation of the answer. Empty without the parameter `answer`
    observed  what was observed when the command ran. Empty without the parameter `answer`
    presets   names and values of the URL's parameters that the form for the votes sends again

    Raises BadInput for an unknown lesson, and for votes that parse_votes() refuses.
    """
    number = query.get("lesson")
    if not number or not settings.SHOP_DEMO_LESSONS:
        return None
    file = Path(settings.SHOP_DEMO_LESSONS)
    lesson_tables = tomllib.loads(file.read_text("utf-8"))["lesson"]
    table_by_number = {str(table["number"]): table for table in lesson_tables}
    if number not in table_by_number:
        raise BadInput("unknown lesson", allowed=table_by_number)
    table = table_by_number[number]
    votes = parse_votes(query.getlist("votes"), option_count=len(table["options"]))
    lesson = {
        "number": table["number"],
        "title": table["title"],
        "question": _format_as_html(table["question"]),
        "command": "",
        "options": [
            {"letter": letter, "text": _format_as_html(option), "votes": count}
            for letter, option, count in zip(LETTERS, table["options"], votes, strict=False)
        ],
        "voters": sum(count or 0 for count in votes),
        "answer": "",
        "why": "",
        "observed": "",
        "presets": [(name, query[name]) for name in PRESETS if name in query],
    }
    if "answer" in query:
        text = (file.parent / "lessons" / f"{table['slug']}.md").read_text("utf-8")
        lesson |= {"answer": table["answer"], **_read_explanation(text)}
    elif "lock" not in query:
        lesson["command"] = table["command"]
    return lesson


def _read_explanation(text: str) -> dict[str, SafeString]:
    """Return the explanation of a lesson's answer (`why`), and what was observed (`observed`).

    text  the lesson, in Markdown
    """
    explanation = _extract(text, after="\n## Explain\n", before="\n## ")
    observation = _extract(text, after="<!-- observed -->", before="<!-- /observed -->")
    return {"why": _format_as_html(explanation), "observed": _format_as_html(observation)}


def parse_votes(fields: Sequence[str], *, option_count: int) -> list[int | None]:
    """Return the number of votes for each option of a lesson's question.

    fields        either one text with all numbers, such as `3,9,1,2`, or a text for each option. A
                  number that is empty or missing counts as 0
    option_count  how many options the question has

    If all numbers are empty, all votes are None. Raises BadInput if a text has anything else than
    numbers, or if there are more numbers than options.
    """
    counts: list[str] = []
    for field in fields:
        counts += [count.strip() for count in field.split(",")]
    # At most three digits: no count exceeds MAX_VOTES_OF_AN_OPTION.
    are_counts = all(re.fullmatch(r"[0-9]{0,3}", count) for count in counts)
    if len(counts) > option_count or not are_counts:
        count_range = f"whole numbers from 0 to {MAX_VOTES_OF_AN_OPTION}"
        allowed = f"{option_count} {count_range} with commas between them"
        raise BadInput("bad votes", allowed=[allowed])
    if not any(counts):
        return [None] * option_count
    counts += [""] * (option_count - len(counts))
    return [int(count or 0) for count in counts]


def _extract(text: str, *, after: str, before: str) -> str:
    """Return the part of a text that follows `after` and precedes `before`, without outer spaces.

    Empty if `after` does not occur. Without `before`, the part ends where the text ends.
    """
    return text.partition(after)[2].partition(before)[0].strip()


def _format_as_html(text: str) -> SafeString:
    """Return the text as HTML, with the parts between backticks as code."""
    return mark_safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))
