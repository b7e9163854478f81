"""A run with a missing field or event is never exact."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from loadtest.judge import history
from loadtest.judge.history import Event
from loadtest.judge.verdict import Judgement
from loadtest.tests import plants as _plants  # noqa: F401 - importing it fills PLANTS
from loadtest.tests.recorded_rush import ALL, ONE_PER_EVIDENCE, PLANTS, Plant, RecordedRush

#: Fields that may be missing: no rule compares them.
OPTIONAL_FIELDS = {"error", "node"}
#: Each plant once, with the first of its strategies.
EACH_PLANT: dict[str, tuple[Plant, str]] = {}
for _plant, _lock, _rule in PLANTS:
    EACH_PLANT.setdefault(_plant.__name__, (_plant, _lock))

#: The fields `by`, `f` and `type` of an event.
Kind: TypeAlias = tuple[str, str, str]


def kind_of(event: Event) -> Kind:
    return event["by"], event["f"], event["type"]


def kinds_of(rush: RecordedRush) -> list[Kind]:
    return list(dict.fromkeys(map(kind_of, rush.history.events)))


def events_of_kind(rush: RecordedRush, kind: Kind) -> list[Any]:
    return [event for event in rush.history.events if kind_of(event) == kind]


def required_names(record: dict[str, Any], kind: Kind | None) -> list[str]:
    """Return the fields of an order or an event that must not be missing.

    A field that is None already means that its value is absent. Only some runs know the node that a
    buyer asked.
    """
    is_of_node = kind is not None and kind[0] == "node"
    optional_names = OPTIONAL_FIELDS - {"node"} if is_of_node else OPTIONAL_FIELDS
    return [
        name for name, value in record.items() if value is not None and name not in optional_names
    ]


def required_fields(rush: RecordedRush) -> Iterator[tuple[Kind | None, str]]:
    """Yield the kind of an event, or None for an order, with each field that it must have."""
    for name in required_names(rush.history.orders[0], None):
        yield None, name
    for kind in kinds_of(rush):
        for name in required_names(events_of_kind(rush, kind)[0], kind):
            yield kind, name


def judge(rush: RecordedRush, folder: Path, **fields: Any) -> Judgement:
    """Judge a rush. If one of its lines is damaged, write the history to a file and read it."""
    required: Any = ("t", "by", "f", "type", "attempt")
    if all(event.get(name) is not None for event in rush.history.events for name in required):
        return rush.judge(**fields)
    path = folder / "history.jsonl"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in rush.history.events))
    rush.history.events = history.read([path])
    return rush.judge(**fields)


def descriptions_of(judgement: Judgement) -> str:
    return "\n".join(finding.description for finding in judgement.findings)


def leave_out(rush: RecordedRush, kind: Kind | None, name: str, *, how: str) -> None:
    """Remove a field from one or all of the orders or events of a kind, or set it to None."""
    records: list[Any] = list(rush.history.orders if kind is None else events_of_kind(rush, kind))
    for record in records[1:2] if how == "once" else records:
        if how == "None":
            record[name] = None
        else:
            record.pop(name, None)


@pytest.mark.parametrize("how", ["all", "once", "None"])
@pytest.mark.parametrize("lock", ONE_PER_EVIDENCE)
def test_missing_field_is_never_exact(lock: str, how: str, tmp_path: Path) -> None:
    """The finding names the field, unless the line is damaged."""
    for kind, name in required_fields(RecordedRush(lock)):
        rush = RecordedRush(lock)
        leave_out(rush, kind, name, how=how)
        judgement = judge(rush, tmp_path)
        assert judgement.verdict == "unknown", (kind, name)
        if "broken_history" not in judgement.violations:
            assert "unrecorded" in judgement.violations, (kind, name)
            assert f" {name}" in descriptions_of(judgement), (kind, name)


@pytest.mark.parametrize("plant", EACH_PLANT)
def test_planted_run_without_a_field_is_never_exact(plant: str, tmp_path: Path) -> None:
    """A violation is not hidden by a missing field that would show it."""
    planted, lock = EACH_PLANT[plant]
    for kind, name in required_fields(RecordedRush(lock)):
        rush = RecordedRush(lock)
        fields = planted(rush) or {}
        leave_out(rush, kind, name, how="all")
        assert judge(rush, tmp_path, **fields).verdict != "exact", (kind, name)


@pytest.mark.parametrize("lock", ALL)
def test_missing_events_are_never_exact(lock: str, tmp_path: Path) -> None:
    """All events of a kind are missing, or one of them."""
    for kind in kinds_of(RecordedRush(lock)):
        for number in (None, 1):
            rush = RecordedRush(lock)
            events = events_of_kind(rush, kind)
            missing = events if number is None else events[number : number + 1]
            rush.history.events = [event for event in rush.history.events if event not in missing]
            assert judge(rush, tmp_path).verdict == "unknown", (kind, number)


@pytest.mark.parametrize("name", ["amount", "order", "stock_seen", "fence", "key"])
def test_value_of_another_type_is_a_finding(name: str) -> None:
    """It does not end the judge with an error."""
    values: list[Any] = ["1", 1.5, [], True]
    for value in values:
        if (name, value) == ("key", "1"):
            continue
        rush = RecordedRush()
        rush.history.orders[1][name] = value
        judgement = rush.judge()
        assert judgement.verdict == "unknown"
        assert f"has {name} {value!r}" in descriptions_of(judgement)


def test_load_needs_the_fields_of_orders_and_answers() -> None:
    """No node recorded events, but an order of a fenced strategy still has a fence."""
    for name in ("fence", "amount", "product"):
        rush = RecordedRush("redis")
        rush.remove_node_events()
        leave_out(rush, None, name, how="all")
        assert rush.judge(nodes_recorded=False).violations[0] == "unrecorded", name
    rush = RecordedRush("redis")
    rush.remove_node_events()
    rush.change_sold_answers(fence=None)
    assert "unrecorded" in rush.judge(nodes_recorded=False).violations
