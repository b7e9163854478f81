"""A field or an event that a shop leaves out never makes a run exact."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.judge import history
from loadtest.judge.verdict import Judgement
from loadtest.tests import plants as _plants  # noqa: F401 - importing it fills PLANTS
from loadtest.tests.recorded_rush import ALL, EACH_WAY, PLANTS, Plant, RecordedRush

#: What a record may lack: nothing is compared with it.
MAY_LACK = {"error", "node"}
#: Each plant once, under the first strategy that it is planted under.
EACH_PLANT: dict[str, tuple[Plant, str]] = {}
for _plant, _lock, _rule in PLANTS:
    EACH_PLANT.setdefault(_plant.__name__, (_plant, _lock))


def kinds_of(rush: RecordedRush) -> list[tuple[str, str, str]]:
    """Return the kinds of its events."""
    events = rush.history.events
    return list(dict.fromkeys((event["by"], event["f"], event["type"]) for event in events))


def of_kind(rush: RecordedRush, kind: tuple[str, str, str]) -> list[Any]:
    """Return its events of a kind."""
    return [e for e in rush.history.events if (e["by"], e["f"], e["type"]) == kind]


def required(values: dict[str, Any], kind: tuple[str, str, str] | None) -> list[str]:
    """Return the fields of an order or an event that may not be missing: what is None already says
    that there is none, and the node that a buyer asked is known in some runs only."""
    is_of_node = kind is not None and kind[0] == "node"
    may_lack = MAY_LACK - {"node"} if is_of_node else MAY_LACK
    return [name for name, value in values.items() if value is not None and name not in may_lack]


def fields_of(rush: RecordedRush) -> Iterator[tuple[tuple[str, str, str] | None, str]]:
    """Yield the kind of an event, or None for an order, with each field that it must have."""
    for name in required(rush.history.orders[0], None):
        yield None, name
    for kind in kinds_of(rush):
        for name in required(of_kind(rush, kind)[0], kind):
            yield kind, name


def judged(rush: RecordedRush, folder: Path, **more: Any) -> Judgement:
    """Judge a rush, and read it from its file first where a line may be no event any more."""
    always: Any = ("t", "by", "f", "type", "attempt")
    if all(e.get(name) is not None for e in rush.history.events for name in always):
        return rush.judge(**more)
    path = folder / "history.jsonl"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in rush.history.events))
    rush.history.events = history.read([path])
    return rush.judge(**more)


def leave_out(
    rush: RecordedRush, kind: tuple[str, str, str] | None, name: str, *, how: str
) -> None:
    """Remove a field from one or all of the orders or events of a kind, or set it to None."""
    records: list[Any] = list(rush.history.orders if kind is None else of_kind(rush, kind))
    for record in records[1:2] if how == "once" else records:
        if how == "None":
            record[name] = None
        else:
            record.pop(name, None)


@pytest.mark.parametrize("how", ["all", "once", "None"])
@pytest.mark.parametrize("lock", EACH_WAY)
def test_missing_field_is_never_exact(lock: str, how: str, tmp_path: Path) -> None:
    """The finding names the field, unless the line is no event any more."""
    for kind, name in fields_of(RecordedRush(lock)):
        rush = RecordedRush(lock)
        leave_out(rush, kind, name, how=how)
        judgement = judged(rush, tmp_path)
        assert judgement.verdict == "unknown", (kind, name)
        if "broken_history" not in judgement.violations:
            assert "unrecorded" in judgement.violations, (kind, name)
            assert any(f" {name}" in finding.description for finding in judgement.findings), (
                kind,
                name,
            )


@pytest.mark.parametrize("plant", EACH_PLANT)
def test_planted_run_without_a_field_is_never_exact(plant: str, tmp_path: Path) -> None:
    """Leaving out what shows a violation does not hide it."""
    planted, lock = EACH_PLANT[plant]
    for kind, name in fields_of(RecordedRush(lock)):
        rush = RecordedRush(lock)
        more = planted(rush) or {}
        leave_out(rush, kind, name, how="all")
        assert judged(rush, tmp_path, **more).verdict != "exact", (kind, name)


@pytest.mark.parametrize("lock", ALL)
def test_missing_events_are_never_exact(lock: str, tmp_path: Path) -> None:
    """All events of a kind are missing, or one of them."""
    for kind in kinds_of(RecordedRush(lock)):
        for number in (None, 1):
            rush = RecordedRush(lock)
            gone = of_kind(rush, kind)[number : None if number is None else number + 1]
            rush.history.events = [e for e in rush.history.events if e not in gone]
            assert judged(rush, tmp_path).verdict == "unknown", (kind, number)


@pytest.mark.parametrize("name", ["amount", "order", "stock_seen", "fence", "key"])
def test_value_of_another_type_is_a_finding(name: str) -> None:
    """The judge does not stop at it."""
    values: list[Any] = ["1", 1.5, [], True]
    for value in values:
        if (name, value) == ("key", "1"):
            continue
        rush = RecordedRush()
        rush.history.orders[1][name] = value
        judgement = rush.judge()
        assert judgement.verdict == "unknown"
        assert f"has {name} {value!r}" in " ".join(f.description for f in judgement.findings)


def test_load_needs_the_fields_of_orders_and_answers() -> None:
    """Where no node recorded, an order of a fenced strategy has a fence all the same."""
    for name in ("fence", "amount", "product"):
        rush = RecordedRush("redis")
        rush.remove_node_events()
        leave_out(rush, None, name, how="all")
        assert rush.judge(nodes_recorded=False).violations[0] == "unrecorded", name
    rush = RecordedRush("redis")
    rush.remove_node_events()
    rush.change_sold_answers(fence=None)
    assert "unrecorded" in rush.judge(nodes_recorded=False).violations
