"""Tests the checks of every exercise with right and wrong solutions, on real servers.

An unsolved exercise is tested as a wrong solution. Each wrong solution must be refused with its own
code. `make test-workshop` runs these tests. Each worker of pytest-xdist checks whole lessons on its
own servers, the bench.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from unittest.mock import Mock

import pytest

from servers.registry import is_alive
from servers.tests.polling import eventually
from workshop.bench import Bench
from workshop.checker import ALL_FAULTS_CHECK, check
from workshop.checks.answers import REFUSAL_CODE_BY_CELL
from workshop.lessons import MARKED_PART, Lesson, lessons
from workshop.refusal import CheckResult
from workshop.shop_faults import LESSON_12_FAULTS
from workshop.tests.bodies import OTHER_RIGHT_SOLUTIONS, OUR_SOLUTIONS, WRONG_SOLUTIONS, Solution


def read_unsolved_exercise(lesson: Lesson) -> Solution:
    """Return the unsolved exercise as a wrong solution.

    The code of its refusal must be the first code of the lesson in lessons.toml.
    """
    marked_part = MARKED_PART.search(lesson.unsolved_path.read_text(encoding="utf-8"))
    assert marked_part is not None
    first_refusal_code = next(iter(lesson.refusals))
    return Solution(lesson, "unsolved", first_refusal_code, marked_part["solution"])


UNSOLVED_EXERCISES = [read_unsolved_exercise(lesson) for lesson in lessons().values()]
#: Number of workers of pytest-xdist that share the solutions of lesson 12.
LESSON_12_GROUPS = 2
#: A file that no exercise accepts -> the code of its refusal.
BROKEN_FILES = {
    "def buy(:\n": "broken",
    "import sys\nsys.exit(3)\n": "broken",
    "buy = None\n": "not-guarded",
    "def buy(attempt): pass\n": "not-guarded",
}


def is_of_lesson_12(solution: Solution) -> bool:
    """Return whether the solution is for lesson 12, whose check causes all faults."""
    return ALL_FAULTS_CHECK in solution.lesson.checks


def for_each_solution(solutions: list[Solution]) -> pytest.MarkDecorator:
    """Return the mark that runs a test with each of the solutions.

    pytest-xdist runs each group of tests on one worker. The solutions of a lesson form a group.
    Those of lesson 12 form LESSON_12_GROUPS groups and come first, because each takes a minute.
    """
    cases = []
    for position, solution in enumerate(sorted(solutions, key=is_of_lesson_12, reverse=True)):
        group = f"lesson-{solution.lesson.number}"
        if is_of_lesson_12(solution):
            group += f"-{position % LESSON_12_GROUPS}"
        cases.append(pytest.param(solution, marks=pytest.mark.xdist_group(group), id=str(solution)))
    return pytest.mark.parametrize("solution", cases)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """Start a bench: the servers on which the checks run.

    They are new servers, even if the environment has the addresses of other servers.
    """
    removed_urls = {name: os.environ.pop(name, None) for name in ("DATABASE_URL", "REDIS_URL")}
    with (
        tempfile.TemporaryDirectory(prefix="oversold-") as folder,
        (Path(folder) / "log").open("wb") as log,
        Bench(Path(folder) / "mine.py", log=log) as bench,
    ):
        yield bench
    os.environ.update({name: url for name, url in removed_urls.items() if url is not None})


def check_file(lesson: Lesson, text: str, bench: Bench) -> CheckResult:
    """Check a file with this text, and return the result."""
    bench.file.write_text(text, encoding="utf-8")
    return check(lesson, bench)


@for_each_solution([*OUR_SOLUTIONS, *OTHER_RIGHT_SOLUTIONS])
def test_right_solution_passes(solution: Solution, bench: Bench) -> None:
    result = check_file(solution.lesson, solution.file_text, bench)
    assert (result.undecided_reason, result.refusal) == ("", None)
    # Some faults have no effect on a solution without a lock. Our solution uses a lock.
    if solution in OUR_SOLUTIONS and is_of_lesson_12(solution):
        assert [cell["fault"] for cell in result.cells] == list(LESSON_12_FAULTS)


@for_each_solution([*UNSOLVED_EXERCISES, *WRONG_SOLUTIONS])
def test_wrong_solution_is_refused_with_its_code(solution: Solution, bench: Bench) -> None:
    result = check_file(solution.lesson, solution.file_text, bench)
    assert result.refusal is not None, result.undecided_reason
    assert result.refusal.code == solution.refusal_code
    for text in solution.lesson.get_refusal_texts(solution.refusal_code).values():
        # This raises KeyError if a placeholder of the text has no value.
        text.format_map(result.refusal.details)


@pytest.mark.parametrize("lock_and_fault", REFUSAL_CODE_BY_CELL, ids="-".join)
def test_wrong_answer_of_lesson_10_has_the_refusal_of_its_cell(
    lock_and_fault: tuple[str, str], bench: Bench
) -> None:
    """In lesson 10 a participant enters the verdict of each cell: of a lock under a fault.

    The verdict `deadlock` is wrong for each cell of the lesson.
    """
    lesson = lessons()[10]
    wrong_file = f"{lesson.make_solved_exercise()}\nANSWERS[{lock_and_fault}] = 'deadlock'\n"
    refusal = check_file(lesson, wrong_file, bench).refusal
    assert refusal is not None
    assert refusal.code == REFUSAL_CODE_BY_CELL[lock_and_fault]


@pytest.mark.parametrize("text", BROKEN_FILES)
def test_broken_file_is_refused_and_the_next_check_works(text: str, bench: Bench) -> None:
    lesson = lessons()[5]
    refusal = check_file(lesson, text, bench).refusal
    assert refusal is not None
    assert refusal.code == BROKEN_FILES[text]
    assert check_file(lesson, lesson.make_solved_exercise(), bench).exit_code == 0


def write_schedules(bench: Bench, sells_twice: str) -> None:
    """Write a participant's file of lesson 1: this SELLS_TWICE, and a right DOES_NOT."""
    bench.file.write_text(f'SELLS_TWICE = "{sells_twice}"\nDOES_NOT = "AAABBB"\n')


def test_every_right_schedule_of_lesson_1_passes(bench: Bench) -> None:
    """All schedules sell twice, except the two in which a buyer ends before the other begins."""
    schedules = {"".join(moves) for moves in permutations("AAABBB")}
    schedules -= {"AAABBB", "BBBAAA"}
    assert len(schedules) == 18
    refusals = {}
    for schedule in sorted(schedules):
        write_schedules(bench, schedule)
        refusal, _ = bench.run_check("answers.schedules")
        if refusal is not None:
            refusals[schedule] = refusal.code, refusal.story
    assert refusals == {}


@pytest.mark.parametrize("schedule", ["AAABBB", "BBBAAA"])
def test_schedule_that_sells_once_is_refused_in_lesson_1(schedule: str, bench: Bench) -> None:
    """In these schedules a buyer ends before the other begins, so the unit is sold once."""
    write_schedules(bench, schedule)
    refusal, _ = bench.run_check("answers.schedules")
    assert refusal is not None
    assert refusal.code == "serial"


#: Statements of a wrong file whose effect lasts as long as the session of PostgreSQL.
SESSION_STATEMENTS = (
    "SELECT pg_advisory_lock(7)",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "CREATE TEMPORARY TABLE IF NOT EXISTS purchase_history (LIKE public.purchase_history)",
)


@pytest.mark.parametrize("statement", SESSION_STATEMENTS)
def test_wrong_file_does_not_affect_the_next_check(statement: str, bench: Bench) -> None:
    """A wrong file changes the session of its database connection, for example by a session lock.

    The nodes keep their connections between checks, but the next right file must still pass.
    """
    right_solution = next(
        solution for solution in OTHER_RIGHT_SOLUTIONS if solution.name == "lock_in_the_database"
    )
    right_file = right_solution.file_text
    wrong_file = right_file.replace("SELECT pg_advisory_xact_lock(7)", statement)
    bench.file.write_text(wrong_file)
    bench.reset_servers()
    bench.run_rush()  # not check(), because it refuses most of these files before the rush
    bench.restart_hung_nodes()
    assert check_file(right_solution.lesson, right_file, bench).refusal is None


def test_file_may_begin_with_a_byte_order_mark(bench: Bench) -> None:
    """Some editors write a byte order mark at the beginning of a file."""
    lesson = lessons()[3]
    assert check_file(lesson, "\ufeff" + lesson.make_solved_exercise(), bench).exit_code == 0


def test_check_of_an_endless_loop_is_ended(bench: Bench) -> None:
    """The check of a file that loops forever is ended, and the refusal contains the loop's line."""
    lesson = lessons()[5]
    endless_file = lesson.unsolved_path.read_text().replace(
        "return bool(self.client.delete(self.key))", "while True: pass"
    )
    refusal = check_file(lesson, endless_file, bench).refusal
    assert refusal is not None
    assert refusal.code == "endless"
    assert "while True" in refusal.details["where"]
    assert check_file(lesson, lesson.make_solved_exercise(), bench).exit_code == 0


def test_processes_of_the_file_end_with_its_check(bench: Bench, tmp_path: Path) -> None:
    """A right file starts the command `sleep 600`. After the check, this command has ended."""
    identity_file = tmp_path / "identity"
    lesson = lessons()[2]
    file_that_starts_a_process = (
        "import json, pathlib, subprocess\n"
        "from servers.registry import read_identity\n"
        "identity = read_identity(subprocess.Popen(['sleep', '600']).pid)\n"
        f"pathlib.Path({str(identity_file)!r}).write_text(json.dumps(identity))\n"
        f"{lesson.make_solved_exercise()}"
    )
    assert check_file(lesson, file_that_starts_a_process, bench).exit_code == 0
    identity = json.loads(identity_file.read_text())
    eventually(lambda: not is_alive(identity), what="the process has ended")


@pytest.mark.parametrize("killed_pid", ["os.getpid()", "os.getppid()"])
def test_killed_check_is_undecided_and_the_next_check_works(killed_pid: str, bench: Bench) -> None:
    """The file kills the process of its check, or the check server that has forked it."""
    lesson = lessons()[2]
    killing_file = (
        f"import os, signal\nos.kill({killed_pid}, signal.SIGKILL)\n{lesson.make_solved_exercise()}"
    )
    assert "the check" in check_file(lesson, killing_file, bench).undecided_reason
    assert check_file(lesson, lesson.make_solved_exercise(), bench).exit_code == 0


def test_check_server_that_died_between_two_checks_is_replaced(bench: Bench) -> None:
    """The check server is the process that forks a process for each check.

    When the check server has died, a check is undecided, and the check after that starts a new one.
    """
    lesson = lessons()[2]
    assert check_file(lesson, lesson.make_solved_exercise(), bench).exit_code == 0
    assert bench._check_server is not None
    bench._check_server.kill()
    bench._check_server.wait()
    assert "has ended" in check_file(lesson, lesson.make_solved_exercise(), bench).undecided_reason
    assert check_file(lesson, lesson.make_solved_exercise(), bench).exit_code == 0


def test_result_of_an_interrupted_check_is_discarded(bench: Bench) -> None:
    """Ctrl-C interrupts the check of a right file. The wrong file that follows is refused."""
    lesson = lessons()[2]
    assert check_file(lesson, lesson.make_solved_exercise(), bench).exit_code == 0
    assert bench._check_server is not None
    stdout = bench._check_server.stdout

    def interrupt() -> str:
        raise KeyboardInterrupt

    bench._check_server.stdout = Mock(wraps=stdout, readline=interrupt)
    with pytest.raises(KeyboardInterrupt):
        check_file(lesson, lesson.make_solved_exercise(), bench)
    wrong_file = "import os\nos._exit(3)\n"
    assert check_file(lesson, wrong_file, bench).refusal is not None


def test_file_cannot_end_the_process_of_its_checks(bench: Bench) -> None:
    """A file that calls os._exit() is refused. The check is not undecided."""
    lesson = lessons()[2]
    refusal = check_file(lesson, "import os\nos._exit(3)\n", bench).refusal
    assert refusal is not None
    assert refusal.code == "raises"
    assert refusal.details["error"].endswith("ended the whole process, exit code 3")


def test_output_of_the_code_is_shown(bench: Bench) -> None:
    """The result of a check contains what the participant's code printed."""
    lesson = lessons()[5]
    first_line = "        script ="  # the first line of our solution
    printing_file = lesson.make_solved_exercise().replace(
        first_line, f"        print('here', end='')\n{first_line}"
    )
    result = check_file(lesson, printing_file, bench)
    assert result.exit_code == 0
    assert "here" in result.output
