"""A run is never exact if a required field or event is missing in its record."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from loadtest.judge import history
from loadtest.judge.history import Event
from loadtest.judge.verdict import Judgement
from loadtest.tests import plants as _plants  # noqa: F401 - importing it fills PLANTS
from loadtest.tests.recorded_rush import (
    ALL_STRATEGIES,
    PLANTS,
    SAMPLE_STRATEGIES,
    Plant,
    RecordedRush,
)

#: The name of each plant -> the plant, and the first strategy for which it is listed. A plant is a
#: function that adds a violation to a recorded rush.
PLANTS_BY_NAME: dict[str, tuple[Plant, str]] = {}
for _plant, _lock, _rule in PLANTS:
    PLANTS_BY_NAME.setdefault(_plant.__name__, (_plant, _lock))


class EventKind(NamedTuple):
    """The kind of an event: the fields that all events of the kind have in common.

    by    the source of the event: a buyer, a node or a fault
    f     the name of the event
    type  invoke, ok, fail or info
    """

    by: str
    f: str
    type: str


def get_kind(event: Event) -> EventKind:
    return EventKind(event["by"], event["f"], event["type"])


def list_event_kinds(rush: RecordedRush) -> list[EventKind]:
    """Return the different kinds of the rush's events."""
    return list(dict.fromkeys(map(get_kind, rush.history.events)))


def list_events_of_kind(rush: RecordedRush, kind: EventKind) -> list[Any]:
    return [event for event in rush.history.events if get_kind(event) == kind]


def list_required_fields_of_record(record: dict[str, Any], kind: EventKind | None) -> list[str]:
    """Return the names of the fields that must not be missing in an order or in an event.

    All fields are required, except those that are None, the field `error`, which no rule uses, and
    the field `node` of a buyer's event, which some runs do not have.

    record  the order or the event
    kind    the kind of the event; None for an order
    """
    optional_names = {"error"}
    if kind is None or kind.by != "node":
        optional_names.add("node")
    return [
        name for name, value in record.items() if value is not None and name not in optional_names
    ]


def list_required_fields(rush: RecordedRush) -> Iterator[tuple[EventKind | None, str]]:
    """Yield the kind of an event (None for an order) and the name of a required field of it."""
    for name in list_required_fields_of_record(rush.history.orders[0], None):
        yield None, name
    for kind in list_event_kinds(rush):
        for name in list_required_fields_of_record(list_events_of_kind(rush, kind)[0], kind):
            yield kind, name


def judge_incomplete_rush(rush: RecordedRush, folder: Path, **fields: Any) -> Judgement:
    """Judge a rush whose events may lack fields.

    If an event lacks one of the names in `indispensable_names`, history.read() returns a damaged
    event in its place. So the events are then written to a file and read again.

    folder  the folder of that file
    fields  arguments of RecordedRush.judge()
    """
    indispensable_names: Any = ("t", "by", "f", "type", "attempt")
    events = rush.history.events
    if any(event.get(name) is None for event in events for name in indispensable_names):
        path = folder / "history.jsonl"
        path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
        rush.history.events = history.read([path])
    return rush.judge(**fields)


def join_descriptions(judgement: Judgement) -> str:
    return "\n".join(finding.description for finding in judgement.findings)


def remove_field(rush: RecordedRush, kind: EventKind | None, name: str, *, removal: str) -> None:
    """Remove the field `name` from the events of this kind; from the orders if `kind` is None.

    removal  `all`: remove it from all; `second`: remove it from the second event or order only;
             `None`: set it to None in all
    """
    records: list[Any] = (
        list(rush.history.orders) if kind is None else list_events_of_kind(rush, kind)
    )
    if removal == "second":
        records = records[1:2]
    for record in records:
        if removal == "None":
            record[name] = None
        else:
            record.pop(name, None)


@pytest.mark.parametrize("removal", ["all", "second", "None"])
@pytest.mark.parametrize("lock", SAMPLE_STRATEGIES)
def test_rush_without_a_field_is_never_exact(lock: str, removal: str, tmp_path: Path) -> None:
    """The finding has the name of the missing field.

    Without some fields the whole event is unreadable. That is the violation `broken_history`.

    removal  how the field is removed, as in remove_field()
    """
    for kind, name in list_required_fields(RecordedRush(lock)):
        rush = RecordedRush(lock)
        remove_field(rush, kind, name, removal=removal)
        judgement = judge_incomplete_rush(rush, tmp_path)
        assert judgement.verdict == "unknown", (kind, name)
        if "broken_history" not in judgement.violations:
            assert "unrecorded" in judgement.violations, (kind, name)
            assert f" {name}" in join_descriptions(judgement), (kind, name)


@pytest.mark.parametrize("plant_name", PLANTS_BY_NAME)
def test_planted_run_without_a_field_is_never_exact(plant_name: str, tmp_path: Path) -> None:
    """A plant adds a violation to a recorded rush, and then a field of the record is removed.

    The verdict must still not be `exact`.
    """
    plant, lock = PLANTS_BY_NAME[plant_name]
    for kind, name in list_required_fields(RecordedRush(lock)):
        rush = RecordedRush(lock)
        judgement_fields = plant(rush) or {}
        remove_field(rush, kind, name, removal="all")
        judgement = judge_incomplete_rush(rush, tmp_path, **judgement_fields)
        assert judgement.verdict != "exact", (kind, name)


@pytest.mark.parametrize("lock", ALL_STRATEGIES)
def test_rush_without_events_of_a_kind_is_never_exact(lock: str, tmp_path: Path) -> None:
    """All events of one kind are removed, or only the second event of that kind."""
    for kind in list_event_kinds(RecordedRush(lock)):
        for removal in ("all", "second"):
            rush = RecordedRush(lock)
            removed_events = list_events_of_kind(rush, kind)
            if removal == "second":
                removed_events = removed_events[1:2]
            rush.history.events = [
                event for event in rush.history.events if event not in removed_events
            ]
            assert judge_incomplete_rush(rush, tmp_path).verdict == "unknown", (kind, removal)


@pytest.mark.parametrize("name", ["amount", "order", "stock_seen", "fence", "key"])
def test_field_of_a_wrong_type_is_a_finding(name: str) -> None:
    """A field of an order has text, a fraction, a list or a boolean instead of a whole number.

    Only the key of an order is text.
    """
    wrong_values: list[Any] = [1.5, [], True]
    if name != "key":
        wrong_values.append("1")
    for wrong_value in wrong_values:
        rush = RecordedRush()
        rush.history.orders[1][name] = wrong_value
        judgement = rush.judge()
        assert judgement.verdict == "unknown"
        assert f"has {name} {wrong_value!r}" in join_descriptions(judgement)


def test_orders_and_answers_need_their_fields_without_events_of_nodes() -> None:
    """In a run of `load` the nodes record no events. The other records need all their fields."""
    for name in ("fence", "amount", "product"):
        rush = RecordedRush("redis")
        rush.remove_node_events()
        remove_field(rush, None, name, removal="all")
        assert rush.judge(nodes_recorded=False).violations[0] == "unrecorded", name
    rush = RecordedRush("redis")
    rush.remove_node_events()
    rush.change_sold_answers(fence=None)
    assert "unrecorded" in rush.judge(nodes_recorded=False).violations


def test_rush_with_an_order_that_is_not_an_object_is_unknown() -> None:
    """The shop's list of orders has null instead of the last order."""
    rush = RecordedRush("redis")
    orders: Any = rush.history.orders
    orders[-1] = None
    judgement = rush.judge()
    assert judgement.verdict == "unknown"
    assert "unrecorded" in judgement.violations
