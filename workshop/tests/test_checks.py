"""Checks of a participant's file that has a mistake, and checks that fail. Needs no server.

Each test writes a solution of an exercise into a file, and runs a check of workshop/checks on it.
The check finds a refusal: the reason why the file is not accepted.
"""

from pathlib import Path
from types import ModuleType

import pytest

from shop.schedules import two_buyers
from shop.schedules.two_buyers import ScheduleRun, TimedOut
from workshop.checks import one_check
from workshop.lessons import lessons
from workshop.refusal import Refusal, Undecided


@pytest.fixture(autouse=True)
def _no_limit_on_slow_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the time limit of checks, which would end the process of the tests."""
    monkeypatch.setattr(one_check, "watch_for_slow_steps", lambda file, report: None)


def write_exercise(folder: Path, text: str) -> Path:
    """Write a participant's file with this text, and return its path."""
    file = folder / "exercise.py"
    file.write_text(text)
    return file


def test_check_is_undecided_after_a_database_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout of PostgreSQL is not the participant's mistake, so the file is not refused."""

    def run_schedule(lock: str, schedule: str, units: int) -> ScheduleRun:
        raise TimedOut("PostgreSQL ended a transaction")

    monkeypatch.setattr(two_buyers, "run_schedule", run_schedule)
    with pytest.raises(Undecided, match="PostgreSQL ended a transaction"):
        one_check.find_refusal(
            "answers.schedules", write_exercise(tmp_path, lessons()[1].make_solved_exercise())
        )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("initial, orders", "oversold() takes 2 arguments, but the shop passes 3: initial, orders"),
        ("sale", "oversold() takes 1 argument, but the shop passes 3: initial, orders, left"),
    ],
)
def test_refusal_lists_the_arguments_that_the_shop_passes(
    parameters: str, message: str, tmp_path: Path
) -> None:
    """A function of the participant's file has too few parameters."""
    text = f"def oversold({parameters}): return 0\ndef lost_updates(a, b, c): return 0\n"
    refusal = one_check.find_refusal("answers.tally", write_exercise(tmp_path, text))
    assert refusal is not None
    assert refusal.code == "wrong-arguments"
    assert refusal.details["error"].startswith(message)


def test_error_in_a_check_refuses_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself fails, because of something that the file returned.

    The file is refused, and not undecided: each new check would end with the same error.
    """

    def fail(module: ModuleType) -> None:
        raise ValueError("dictionary update sequence element #0 has length 8")

    monkeypatch.setattr("workshop.checks.answers.check_table", fail)
    refusal = one_check.find_refusal(
        "answers.table", write_exercise(tmp_path, lessons()[10].make_solved_exercise())
    )
    assert refusal is not None
    assert refusal.code == "check-failed"
    assert "length 8" in refusal.details["error"]


def find_refusal_of_body(body: str, folder: Path) -> Refusal:
    """Return the refusal of a file of lesson 2 whose function oversold() has this body."""
    text = f"def oversold(initial, orders, left):\n    {body}\n"
    text += "def lost_updates(initial, orders, left): return orders + left - initial\n"
    refusal = one_check.find_refusal("answers.tally", write_exercise(folder, text))
    assert refusal is not None
    return refusal


def test_mistake_that_a_broad_except_hides_is_reported(tmp_path: Path) -> None:
    """The file misspells `orders` in a `try` whose `except` catches all errors.

    The refusal reports this NameError, and not the wrong count that it leads to.
    """
    body = "try: return max(0, ordrs - initial)\n    except Exception: return 0"
    refusal = find_refusal_of_body(body, tmp_path)
    assert refusal.code == "mistake-caught"
    assert "ordrs" in refusal.details["error"]


@pytest.mark.parametrize(
    "body",
    [
        "try: return {}[orders]\n    except KeyError: return 0",
        "try: return ordrs\n    except (NameError, OSError): return 0",
    ],
)
def test_error_that_an_except_lists_is_not_a_mistake(body: str, tmp_path: Path) -> None:
    """The participant expected this error. So the file is refused for its wrong counts instead."""
    assert find_refusal_of_body(body, tmp_path).code == "counts-wrong"


def test_mistake_that_is_not_caught_is_reported(tmp_path: Path) -> None:
    """The file misspells `orders` in a `try` without an `except`."""
    body = "try: return max(0, ordrs - initial)\n    finally: print()"
    refusal = find_refusal_of_body(body, tmp_path)
    assert refusal.code == "raises"
    assert "ordrs" in refusal.details["error"]
