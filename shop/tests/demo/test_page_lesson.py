"""A lesson on the page: its question, and its answer only where the address asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from shop.demo.lesson import lesson
from shop.errors import BadInput

LESSONS = """
[[lesson]]
number = 5
slug = "05-late"
title = "Late"
question = "What happens?"
options = ["nothing", "much"]
answer = "b"
command = "make faults"
"""


@pytest.fixture
def lessons(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "lessons.toml"
    path.write_text(LESSONS)
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / "05-late.md").write_text(
        "# Late\n\n## Explain\n\nToo much.\n\n## Exercise\n"
    )
    settings.SHOP_DEMO_LESSONS = str(path)


@pytest.mark.usefixtures("lessons")
def test_the_question_its_options_and_its_command_are_shown_and_nothing_else() -> None:
    assert lesson({"lesson": "5"}) == {
        "number": 5,
        "title": "Late",
        "question": "What happens?",
        "options": [("a", "nothing"), ("b", "much")],
        "command": "make faults",
        "answer": "",
        "why": "",
    }
    page = Client().get("/?lesson=5").content.decode()
    assert ("What happens?" in page, "make faults" in page, "Too much." in page) == (
        True,
        True,
        False,
    )


@pytest.mark.usefixtures("lessons")
def test_after_the_vote_the_answer_and_why_are_shown_and_no_command() -> None:
    page = Client().get("/?lesson=5&answer").content.decode()
    assert '<li class="right"><b>b</b> much</li>' in page
    assert ("Too much." in page, "make faults" in page) == (True, False)


@pytest.mark.usefixtures("lessons")
def test_where_the_form_is_filled_in_the_page_gives_no_command_beside_it() -> None:
    assert "make faults" not in Client().get("/?lesson=5&lock=none").content.decode()


@pytest.mark.usefixtures("lessons")
def test_an_unknown_lesson_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BadInput):
        lesson({"lesson": "6"})
    answer = Client().get("/?lesson=6")
    assert (answer.status_code, answer.json()["allowed"]) == (400, ["5"])


@pytest.mark.usefixtures("lessons")
def test_nothing_is_projected_outside_a_demo_or_without_lessons(settings: Any) -> None:
    assert lesson({}) is None
    settings.SHOP_DEMO = False
    assert lesson({"lesson": "5"}) is None
    settings.SHOP_DEMO, settings.SHOP_DEMO_LESSONS = True, ""
    assert lesson({"lesson": "5"}) is None
