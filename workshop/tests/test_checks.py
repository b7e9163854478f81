"""The end of a check that cannot decide, or that the file breaks. Needs no server."""

from pathlib import Path
from types import ModuleType

import pytest

from shop.schedules import two_buyers
from shop.schedules.two_buyers import ScheduleRun, TimedOut
from workshop.checks import __main__ as checks
from workshop.lessons import lessons
from workshop.refusal import Undecided


@pytest.fixture(autouse=True)
def _without_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the watch, which ends the process of a slow check."""
    monkeypatch.setattr(checks, "give_up_slow_steps", lambda file, report: None)


def write_exercise(folder: Path, number: int, text: str = "") -> Path:
    file = folder / "exercise.py"
    file.write_text(text or lessons()[number].solved())
    return file


def test_timeout_of_the_database_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule without an outcome refuses nothing."""

    def run_schedule(lock: str, schedule: str, units: int) -> ScheduleRun:
        raise TimedOut("PostgreSQL ended a transaction")

    monkeypatch.setattr(two_buyers, "run_schedule", run_schedule)
    with pytest.raises(Undecided, match="PostgreSQL ended a transaction"):
        checks.main("answers.schedules", write_exercise(tmp_path, 1))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("initial, orders", "oversold() takes 2 arguments, but the shop passes 3: initial, orders"),
        ("sale", "oversold() takes 1 argument, but the shop passes 3: initial, orders, left"),
    ],
)
def test_wrong_arguments_are_named(parameters: str, message: str, tmp_path: Path) -> None:
    text = f"def oversold({parameters}): return 0\ndef lost_updates(a, b, c): return 0\n"
    refusal = checks.main("answers.tally", write_exercise(tmp_path, 2, text))
    assert refusal is not None
    assert refusal.code == "wrong-arguments"
    assert refusal.facts["error"].startswith(message)


def test_error_of_a_check_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither a traceback nor undecided, because the same file would end in the same way."""

    def break_off(module: ModuleType) -> None:
        raise ValueError("dictionary update sequence element #0 has length 8")

    monkeypatch.setattr("workshop.checks.answers.table", break_off)
    refusal = checks.main("answers.table", write_exercise(tmp_path, 10))
    assert refusal is not None
    assert (refusal.code, "length 8" in refusal.facts["error"]) == ("check-failed", True)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("try: return max(0, ordrs - initial)\n    except Exception: return 0", "mistake-caught"),
        ("try: return {}[orders]\n    except KeyError: return 0", "counts-wrong"),
        ("try: return ordrs\n    except (NameError, OSError): return 0", "counts-wrong"),
        ("try: return max(0, ordrs - initial)\n    finally: print()", "raises"),
    ],
)
def test_caught_mistake_is_named(body: str, code: str, tmp_path: Path) -> None:
    """A mistake that an `except` hides is the cause of the later refusal."""
    text = f"def oversold(initial, orders, left):\n    {body}\n"
    text += "def lost_updates(initial, orders, left): return orders + left - initial\n"
    refusal = checks.main("answers.tally", write_exercise(tmp_path, 2, text))
    assert refusal is not None
    assert refusal.code == code
    assert code == "counts-wrong" or "ordrs" in refusal.facts["error"]
