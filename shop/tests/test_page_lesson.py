"""A lesson on the page: its question, never its answer."""

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
    settings.SHOP_DEMO_LESSONS = str(path)


@pytest.mark.usefixtures("lessons")
def test_the_question_its_options_and_its_command_are_shown_and_nothing_else() -> None:
    assert lesson("5") == {
        "number": 5,
        "title": "Late",
        "question": "What happens?",
        "options": [("a", "nothing"), ("b", "much")],
        "command": "make faults",
    }
    assert "What happens?" in Client().get("/?lesson=5").content.decode()


@pytest.mark.usefixtures("lessons")
def test_an_unknown_lesson_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BadInput):
        lesson("6")
    answer = Client().get("/?lesson=6")
    assert (answer.status_code, answer.json()["allowed"]) == (400, ["5"])


@pytest.mark.usefixtures("lessons")
def test_nothing_is_projected_outside_a_demo_or_without_lessons(settings: Any) -> None:
    assert lesson(None) is None
    settings.SHOP_DEMO = False
    assert lesson("5") is None
    settings.SHOP_DEMO, settings.SHOP_DEMO_LESSONS = True, ""
    assert lesson("5") is None
