"""For each strategy, the steps in the section "A strategy" of CONTRIBUTING.md were done.

The section lists the steps of adding a strategy, such as a row in a table. If a step was not done
for a strategy, a test fails with a message that says what to do. Another test compares the points
of a purchase in the code with the list of points.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from loadtest.expected import EXPECTED, SUPPORTED_DATABASES, SURVIVABLE_VERDICTS, TRAITS
from loadtest.faults import FAULTS
from loadtest.judge.mechanism import MECHANISMS
from servers.embedded import ROOT
from shop.sale import points
from shop.strategies import STRATEGIES, Strategy
from tools.site.recorder import recording

#: The strategies without recorded schedules, in which a purchase has three moves: `reserve` is one
#: script in Redis, and `autocommit` has no commit.
WITHOUT_SCHEDULES = {"reserve", "autocommit"}


def find_missing_steps(strategy: Strategy) -> Iterator[str]:
    """Yield what remains to be done to add this strategy to the project, as sentences."""
    name = strategy.name
    if name not in EXPECTED:  # EXPECTED is made from TABLE
        yield "give it a row in TABLE of loadtest/expected.py"
    if name not in TRAITS:
        yield "give it a row in TRAITS of loadtest/expected.py"
    if name not in MECHANISMS:
        yield "give it an entry in MECHANISMS of loadtest/judge/mechanism.py"
    survives_all = not {"oversold", "deadlock"} & set(SURVIVABLE_VERDICTS.get(name, ()))
    if name in EXPECTED and strategy.sound != survives_all:
        yield (
            f"its `sound` is {strategy.sound}, and its row in loadtest/expected.py disagrees: a "
            "sound strategy survives the rush and all faults, and a flawed strategy does not; "
            "correct one of the two"
        )
    if SUPPORTED_DATABASES.get(name, ()) != strategy.databases:
        yield "give SUPPORTED_DATABASES of loadtest/expected.py the databases of its STRATEGY"
    if name not in {*recording.read_recorded_moves(), *WITHOUT_SCHEDULES}:
        yield f"run .venv/bin/python -m tools.site.recorder.recording schedules {name}"
    if f"`{name}`" not in (ROOT / "docs/sources.md").read_text():
        yield "mention it in docs/sources.md"
    # The backend "postgresql" stands for any database of the shop.
    is_in_database = strategy.backend == "postgresql" and strategy.sound
    if is_in_database and f"\n| `{name}` | exact" not in (ROOT / "docs/scale.md").read_text():
        yield "add it to the table of PgBouncer in docs/scale.md"


def find_faults_in_docstring(docstring: str) -> Iterator[str]:
    """Yield the faults that show the flaw, according to a docstring of a strategy's file.

    The docstring has a clause such as "the fault `pause` shows it".
    """
    for clause in re.split(r"[.;](?:\s|$)", " ".join(docstring.split())):
        if re.search(r"\bshows?\b", clause) and "fault" in clause:
            yield from (name for name in re.findall(r"`([a-z-]+)`", clause) if name in FAULTS)


@pytest.mark.parametrize(
    "strategy",
    [strategy for strategy in STRATEGIES.values() if not strategy.sound],
    ids=lambda strategy: strategy.name,
)
def test_faults_in_the_docstring_break_the_strategy(strategy: Strategy) -> None:
    """The docstring of a flawed strategy mentions faults that show the flaw.

    The expected verdict of the strategy under these faults must be `oversold` or `deadlock`.
    """
    docstring = ast.get_docstring(ast.parse((ROOT / strategy.file).read_text())) or ""
    for fault in find_faults_in_docstring(docstring):
        assert EXPECTED[strategy.name][fault] in {"oversold", "deadlock"}, fault


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_every_step_was_done_for_the_strategy(strategy: Strategy) -> None:
    if steps := list(find_missing_steps(strategy)):
        pytest.fail(f"{strategy.name}: " + "; ".join(steps))


def test_every_step_is_missing_for_a_strategy_in_no_table() -> None:
    """find_missing_steps() checks eight steps, of which it reports seven for this strategy.

    The eighth step compares `sound` with the strategy's row in TABLE. This strategy has no row.
    """
    strategy = Strategy(
        rank=1,
        title="",
        summary="",
        highlights=(),
        buy=STRATEGIES["none"].buy,
        name="new",
        backend="postgresql",
        sound=True,
        databases=("mysql",),
    )
    steps = list(find_missing_steps(strategy))
    assert len(steps) == 7
    assert "run .venv/bin/python -m tools.site.recorder.recording schedules new" in steps


def test_every_point_is_listed() -> None:
    """The docstring of shop/sale/points.py lists each injection point that a purchase can reach.

    If this test fails, add the point to that docstring.
    """
    listed_points = set(re.findall(r"[\w:-]+", points.__doc__ or ""))
    packages = ("sale", "strategies", "reserve")
    paths = [path for package in packages for path in (ROOT / "shop" / package).rglob("*.py")]
    sent_points = {
        name
        for path in paths
        for name in re.findall(r'\bpoint_reached\.send\(\s*"([^"]+)"', path.read_text())
    }
    assert len(sent_points) > 15, "the pattern does not find the calls"
    assert sent_points <= listed_points
