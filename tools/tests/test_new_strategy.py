"""Every strategy has all that the section "A strategy" of CONTRIBUTING.md asks for.

The section lists the steps of adding a strategy, such as a row in a table. A test fails with the
steps that a strategy lacks. Another test compares the points in the code with their list.
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

#: `reserve` is one script in Redis, and `autocommit` has no commit: no buyer has three moves.
WITHOUT_SCHEDULES = {"reserve", "autocommit"}


def find_missing_steps(strategy: Strategy) -> Iterator[str]:
    """Yield the steps of adding a strategy to the project that were not done for this strategy."""
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
            f"sound is {strategy.sound}, and its row in loadtest/expected.py says otherwise; a "
            "flawed strategy needs the rush or a fault that breaks it"
        )
    if SUPPORTED_DATABASES.get(name, ()) != strategy.databases:
        yield "give SUPPORTED_DATABASES of loadtest/expected.py the databases of its STRATEGY"
    if name not in {*recording.read_recorded_moves(), *WITHOUT_SCHEDULES}:
        yield f"run .venv/bin/python -m tools.site.recorder.recording schedules {name}"
    if f"`{name}`" not in (ROOT / "docs/sources.md").read_text():
        yield "name it in docs/sources.md"
    # The backend "postgresql" stands for any database of the shop.
    is_in_database = strategy.backend == "postgresql" and strategy.sound
    if is_in_database and f"\n| `{name}` | exact" not in (ROOT / "docs/scale.md").read_text():
        yield "add it to the table of PgBouncer in docs/scale.md"


def find_faults_in_docstring(docstring: str) -> Iterator[str]:
    """Yield the faults that show a flaw according to a docstring: "The fault `pause` shows it"."""
    for clause in re.split(r"[.;](?:\s|$)", " ".join(docstring.split())):
        if re.search(r"\bshows?\b", clause) and "fault" in clause:
            yield from (name for name in re.findall(r"`([a-z-]+)`", clause) if name in FAULTS)


@pytest.mark.parametrize(
    "strategy",
    [strategy for strategy in STRATEGIES.values() if not strategy.sound],
    ids=lambda strategy: strategy.name,
)
def test_faults_in_the_docstring_break_the_strategy(strategy: Strategy) -> None:
    """A docstring names faults that show the flaw; their expected verdicts must be violations."""
    docstring = ast.get_docstring(ast.parse((ROOT / strategy.file).read_text())) or ""
    for fault in find_faults_in_docstring(docstring):
        assert EXPECTED[strategy.name][fault] in {"oversold", "deadlock"}, fault


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_strategy_lacks_no_step(strategy: Strategy) -> None:
    if steps := list(find_missing_steps(strategy)):
        pytest.fail(f"{strategy.name}: " + "; ".join(steps))


def test_strategy_in_no_table_lacks_every_step() -> None:
    strategy = Strategy(
        rank=1,
        title="",
        summary="",
        marks=(),
        buy=STRATEGIES["none"].buy,
        name="new",
        backend="postgresql",
        sound=True,
        databases=("mysql",),
    )
    steps = list(find_missing_steps(strategy))
    assert len(steps) == 7, "all steps except that for a wrong `sound`"
    assert "run .venv/bin/python -m tools.site.recorder.recording schedules new" in steps


def test_every_point_is_listed() -> None:
    """shop/sale/points.py lists each point of a purchase for which the shop sends `point_reached`.

    If this fails, add the point to the docstring of that module.
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
