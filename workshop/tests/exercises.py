"""Checks every exercise as shipped, and every right and wrong solution, on real servers.

`make test-workshop` runs them. Each worker of pytest-xdist checks whole lessons on its own servers.
"""

import os
import tempfile
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from workshop.bench import Bench
from workshop.checker import check
from workshop.checks.answers import BELIEFS
from workshop.lessons import MARKED_PART, Lesson, lessons
from workshop.refusal import Result
from workshop.shop_faults import LESSON_12_FAULTS
from workshop.tests.bodies import RIGHT, SOLUTIONS, WRONG, Body

#: Every exercise as it is shipped, with the code that it is refused with.
SHIPPED = [
    Body(
        lesson,
        "shipped",
        next(iter(lesson.refusals)),
        MARKED_PART.findall(lesson.shipped_path.read_text(encoding="utf-8"))[0][1],
    )
    for lesson in lessons().values()
]
LESSON_12_GROUPS = 2
#: Files that are wrong in a way that any exercise can be wrong.
BROKEN = {
    "def buy(:\n": "broken",
    "import sys\nsys.exit(3)\n": "broken",
    "buy = None\n": "not-guarded",
    "def buy(attempt): pass\n": "not-guarded",
}


def parametrize(bodies: list[Body]) -> pytest.MarkDecorator:
    """Run a test with each body, in groups that pytest-xdist distributes among its workers.

    A lesson is a group. Lesson 12 runs a rush under each fault, which takes a minute, so its
    bodies come first, in LESSON_12_GROUPS groups.
    """

    def is_of_lesson_12(body: Body) -> bool:
        return "boss" in body.lesson.checks

    cases = []
    for position, body in enumerate(sorted(bodies, key=is_of_lesson_12, reverse=True)):
        group = f"lesson-{body.lesson.number}"
        if is_of_lesson_12(body):
            group += f"-{position % LESSON_12_GROUPS}"
        cases.append(pytest.param(body, marks=pytest.mark.xdist_group(group), id=str(body)))
    return pytest.mark.parametrize("body", cases)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    before = {name: os.environ.pop(name, None) for name in ("DATABASE_URL", "REDIS_URL")}
    with (
        tempfile.TemporaryDirectory(prefix="oversold-") as folder,
        (Path(folder) / "log").open("wb") as log,
        Bench(Path(folder) / "mine.py", log=log) as bench,
    ):
        yield bench
    os.environ.update({name: value for name, value in before.items() if value is not None})


def result_of(lesson: Lesson, text: str, bench: Bench) -> Result:
    """Return the result of a check of this file."""
    bench.file.write_text(text, encoding="utf-8")
    return check(lesson, bench)


@parametrize([*SOLUTIONS, *RIGHT])
def test_right_body_passes(body: Body, bench: Bench) -> None:
    result = result_of(body.lesson, body.file, bench)
    assert (result.undecided, result.refusal) == ("", None)
    if body in SOLUTIONS and "boss" in body.lesson.checks:  # no column may drop out unnoticed
        assert [cell["fault"] for cell in result.cells] == list(LESSON_12_FAULTS)


@parametrize([*SHIPPED, *WRONG])
def test_wrong_body_is_refused_with_its_code(body: Body, bench: Bench) -> None:
    result = result_of(body.lesson, body.file, bench)
    assert result.refusal is not None, result.undecided
    assert result.refusal.code == body.code
    for text in body.lesson.refusal_texts(body.code).values():
        text.format_map(result.refusal.facts)  # raises KeyError for a placeholder without a fact


@pytest.mark.parametrize("cell", BELIEFS, ids="-".join)
def test_wrong_cell_of_lesson_10_names_the_belief(cell: tuple[str, str], bench: Bench) -> None:
    lesson = lessons()[10]
    wrong = f"{lesson.solved()}\nANSWERS[{cell}] = 'deadlock'\n"
    refusal = result_of(lesson, wrong, bench).refusal
    assert refusal is not None
    assert refusal.code == BELIEFS[cell]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_file_is_refused_with_its_line(text: str, bench: Bench) -> None:
    """The next check works."""
    lesson = lessons()[5]
    refusal = result_of(lesson, text, bench).refusal
    assert refusal is not None
    assert refusal.code == BROKEN[text]
    assert result_of(lesson, lesson.solved(), bench).exit_code == 0


def test_every_right_order_of_lesson_1_passes(bench: Bench) -> None:
    """All 18 that sell twice, each in its own process."""
    orders = {"".join(moves) for moves in permutations("AAABBB")} - {"AAABBB", "BBBAAA"}
    assert len(orders) == 18
    refused = {}
    for order in sorted(orders):
        bench.file.write_text(f'SELLS_TWICE = "{order}"\nDOES_NOT = "AAABBB"\n')
        refusal, _ = bench.run_check("answers.schedules")
        if refusal is not None:
            refused[order] = refusal.code, refusal.story
    assert refused == {}


@pytest.mark.parametrize("order", ["AAABBB", "BBBAAA"])
def test_order_that_sells_once_is_refused_in_lesson_1(order: str, bench: Bench) -> None:
    bench.file.write_text(f'SELLS_TWICE = "{order}"\nDOES_NOT = "AAABBB"\n')
    refusal, _ = bench.run_check("answers.schedules")
    assert refusal is not None
    assert refusal.code == "serial"


#: What a wrong try can leave behind in its session.
LEFT_BEHIND = (
    "SELECT pg_advisory_lock(7)",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "CREATE TEMPORARY TABLE IF NOT EXISTS purchase_history (LIKE public.purchase_history)",
)


@pytest.mark.parametrize("statement", LEFT_BEHIND)
def test_wrong_try_leaves_nothing_in_the_nodes(statement: str, bench: Bench) -> None:
    """A session's lock, setting and temporary table end with the check that made them."""
    lesson = lessons()[11]
    with_a_lock = next(body for body in RIGHT if body.name == "lock_in_the_database")
    wrong = with_a_lock.file.replace("SELECT pg_advisory_xact_lock(7)", statement)
    bench.file.write_text(wrong)
    bench.reset_servers()
    bench.run_rush()  # in the nodes; most of these are refused before
    bench.restart_hung_nodes()
    assert result_of(lesson, with_a_lock.file, bench).refusal is None


def test_byte_order_mark_changes_nothing(bench: Bench) -> None:
    lesson = lessons()[3]
    assert result_of(lesson, "\ufeff" + lesson.solved(), bench).exit_code == 0


def test_endless_loop_is_given_up_and_the_next_check_works(bench: Bench) -> None:
    lesson = lessons()[5]
    loop = lesson.shipped_path.read_text().replace(
        "return bool(self.client.del", "while True: bool("
    )
    refusal = result_of(lesson, loop.replace("bool(ete(self.key))", "pass"), bench).refusal
    assert refusal is not None
    assert (refusal.code, "while True" in refusal.facts["where"]) == ("endless", True)
    assert result_of(lesson, lesson.solved(), bench).exit_code == 0


def test_output_of_the_code_is_shown(bench: Bench) -> None:
    lesson = lessons()[5]
    text = lesson.solved()
    talkative = text.replace("        script =", "        print('here', end='')\n        script =")
    result = result_of(lesson, talkative, bench)
    assert (result.exit_code, "here" in result.printed) == (0, True)
