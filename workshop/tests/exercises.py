"""Every exercise, solution, right and wrong variant against the real checks on real servers.

Not in `make test`: make test-workshop. A worker of xdist checks whole lessons, on its own servers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workshop.bench import Bench
from workshop.checker import Result, check
from workshop.lessons import HERE, Lesson, lessons
from workshop.shop_faults import ROW
from workshop.tests.test_lessons import lesson_shipped_code, wrong

RIGHT = [
    (lesson, path)
    for lesson in lessons().values()
    for path in (
        lesson.solution,
        *sorted((HERE / "right" / lesson.shipped.stem).glob("*.py")),
    )
]
WRONG = [
    (lesson, path, code)
    for lesson in lessons().values()
    for path, code in ({lesson.shipped: lesson_shipped_code(lesson)} | wrong(lesson)).items()
]


def group(lesson: Lesson) -> pytest.MarkDecorator:
    """For xdist: groups that take about as long, each with servers of its own. The whole row of
    faults is one, for it takes a minute for each solution."""
    name = "row" if "boss" in lesson.checks else str(lesson.number % 3)
    return pytest.mark.xdist_group(f"exercises-{name}")


#: Files that are wrong in a way that any exercise can be wrong.
BROKEN = {
    "def buy(:\n": "broken",
    "import sys\nsys.exit(3)\n": "broken",
    "buy = None\n": "not-guarded",
    "def buy(attempt): pass\n": "not-guarded",
}


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


def result_of(lesson: Lesson, path: Path, bench: Bench) -> Result:
    """What a check says of this file; what is undecided is tried once more."""
    for _ in range(2):
        shutil.copyfile(path, bench.file)
        result = check(lesson, bench.file, bench)
        if not result.undecided:
            break
        bench.renew_if_hung()
        print(f"UNDECIDED {path.parent.name}/{path.name}: {result.undecided}")  # pytest -rP counts
    return result


@pytest.mark.parametrize(
    ("lesson", "path"),
    [pytest.param(*each, marks=group(each[0])) for each in RIGHT],
    ids=[f"{path.parent.name}/{path.stem}" for _, path in RIGHT],
)
def test_what_is_right_passes_however_it_is_written(
    lesson: Lesson, path: Path, bench: Bench
) -> None:
    result = result_of(lesson, path, bench)
    assert (result.undecided, result.refusal) == ("", None)
    if path == lesson.solution and "boss" in lesson.checks:  # no column may drop out unnoticed
        assert [cell["fault"] for cell in result.cells] == list(ROW)


@pytest.mark.parametrize(
    ("lesson", "path", "code"),
    [pytest.param(*each, marks=group(each[0])) for each in WRONG],
    ids=[f"{path.parent.name}/{path.stem}" for _, path, _ in WRONG],
)
def test_what_is_wrong_is_refused_with_its_own_code(
    lesson: Lesson, path: Path, code: str, bench: Bench
) -> None:
    result = result_of(lesson, path, bench)
    assert result.refusal is not None, result.undecided
    assert result.refusal.code == code
    lesson.words(code)["headline"].format_map(dict(result.refusal.facts))  # each place has a fact


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_is_broken_is_refused_with_its_line_and_the_next_check_works(
    text: str, bench: Bench, tmp_path: Path
) -> None:
    lesson = lessons()[5]
    broken = tmp_path / "broken.py"
    broken.write_text(text)
    refusal = result_of(lesson, broken, bench).refusal
    assert refusal is not None
    assert refusal.code == BROKEN[text]
    assert result_of(lesson, lesson.solution, bench).exit_code == 0


def test_an_endless_loop_is_given_up_and_the_next_check_works(bench: Bench, tmp_path: Path) -> None:
    lesson = lessons()[5]
    loop = tmp_path / "loop.py"
    text = lesson.shipped.read_text(encoding="utf-8")
    loop.write_text(text.replace("return bool(self.client.delete(self.key))", "while True: pass"))
    refusal = result_of(lesson, loop, bench).refusal
    assert refusal is not None
    assert (refusal.code, "line" in refusal.facts["where"]) == ("endless", True)
    assert result_of(lesson, lesson.solution, bench).exit_code == 0


def test_what_the_code_prints_is_shown_and_disturbs_nothing(bench: Bench, tmp_path: Path) -> None:
    lesson = lessons()[5]
    talkative = tmp_path / "talkative.py"
    text = lesson.solution.read_text(encoding="utf-8")
    talkative.write_text(
        text.replace("        script =", "        print('here')\n        script =")
    )
    result = result_of(lesson, talkative, bench)
    assert (result.exit_code, "here" in result.printed) == (0, True)


def test_a_file_that_is_gone_is_refused_as_gone(bench: Bench) -> None:
    bench.file.unlink(missing_ok=True)
    refusal = check(lessons()[5], bench.file, bench).refusal
    assert refusal is not None
    assert refusal.code == "gone"
