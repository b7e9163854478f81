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
from loadtest.tests.recorded_rush import (
    ALL_STRATEGIES,
    PLANTS,
    SAMPLE_STRATEGIES,
    Plant,
    RecordedRush,
)

#: The name of each plant -> the plant, and the first of its strategies.
PLANTS_BY_NAME: dict[str, tuple[Plant, str]] = {}
for _plant, _lock, _rule in PLANTS:
    PLANTS_BY_NAME.setdefault(_plant.__name__, (_plant, _lock))

#: The fields `by`, `f` and `type` of an event.
Kind: TypeAlias = tuple[str, str, str]


def get_kind(event: Event) -> Kind:
    return event["by"], event["f"], event["type"]


def list_kinds(rush: RecordedRush) -> list[Kind]:
    """Return the different kinds of the rush's events."""
    return list(dict.fromkeys(map(get_kind, rush.history.events)))


def list_events(rush: RecordedRush, kind: Kind) -> list[Any]:
    return [event for event in rush.history.events if get_kind(event) == kind]


def list_required_names(record: dict[str, Any], kind: Kind | None) -> list[str]:
    """Return the names of the fields that must not be missing in an order or in an event.

    record  the order or the event; its fields that are None are not required
    kind    the kind of the event; None for an order

    No rule uses the field `error`. Nor does any rule use the `node` of a buyer's event, which is
    not recorded in every run.
    """
    optional_names = {"error"}
    if kind is None or kind[0] != "node":
        optional_names.add("node")
    return [
        name for name, value in record.items() if value is not None and name not in optional_names
    ]


def list_required_fields(rush: RecordedRush) -> Iterator[tuple[Kind | None, str]]:
    """Yield each required field: the kind of the event, or None for an order, and the name."""
    for name in list_required_names(rush.history.orders[0], None):
        yield None, name
    for kind in list_kinds(rush):
        for name in list_required_names(list_events(rush, kind)[0], kind):
            yield kind, name


def judge(rush: RecordedRush, folder: Path, **fields: Any) -> Judgement:
    """Judge a rush that may have damaged events; `fields` are fields of the judgement.

    An event is damaged if it lacks one of the fields below. The judge depends on history.read() to
    replace such an event, so the history is then written to a file in `folder`, and read from it.
    """
    fields_of_whole_line: Any = ("t", "by", "f", "type", "attempt")
    events = rush.history.events
    if any(event.get(name) is None for event in events for name in fields_of_whole_line):
        path = folder / "history.jsonl"
        path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
        rush.history.events = history.read([path])
    return rush.judge(**fields)


def join_descriptions(judgement: Judgement) -> str:
    return "\n".join(finding.description for finding in judgement.findings)


def remove_field(rush: RecordedRush, kind: Kind | None, name: str, *, how: str) -> None:
    """Remove the field `name` from the orders (if `kind` is None), or from the events of a kind.

    how  `all`: from all of them; `second`: from the second only; `None`: set it to None in all
    """
    records: list[Any] = list(rush.history.orders) if kind is None else list_events(rush, kind)
    if how == "second":
        records = records[1:2]
    for record in records:
        if how == "None":
            record[name] = None
        else:
            record.pop(name, None)


@pytest.mark.parametrize("how", ["all", "second", "None"])
@pytest.mark.parametrize("lock", SAMPLE_STRATEGIES)
def test_rush_without_a_field_is_never_exact(lock: str, how: str, tmp_path: Path) -> None:
    """The finding names the field, except if its absence makes the whole event unreadable."""
    for kind, name in list_required_fields(RecordedRush(lock)):
        rush = RecordedRush(lock)
        remove_field(rush, kind, name, how=how)
        judgement = judge(rush, tmp_path)
        assert judgement.verdict == "unknown", (kind, name)
        if "broken_history" not in judgement.violations:
            assert "unrecorded" in judgement.violations, (kind, name)
            assert f" {name}" in join_descriptions(judgement), (kind, name)


@pytest.mark.parametrize("plant_name", PLANTS_BY_NAME)
def test_planted_run_without_a_field_is_never_exact(plant_name: str, tmp_path: Path) -> None:
    """A rush with a planted violation also lacks a field, which must not hide the violation."""
    plant, lock = PLANTS_BY_NAME[plant_name]
    for kind, name in list_required_fields(RecordedRush(lock)):
        rush = RecordedRush(lock)
        judgement_fields = plant(rush) or {}
        remove_field(rush, kind, name, how="all")
        assert judge(rush, tmp_path, **judgement_fields).verdict != "exact", (kind, name)


@pytest.mark.parametrize("lock", ALL_STRATEGIES)
def test_rush_without_events_of_a_kind_is_never_exact(lock: str, tmp_path: Path) -> None:
    """All events of one kind are removed, or only the second."""
    for kind in list_kinds(RecordedRush(lock)):
        for how in ("all", "second"):
            rush = RecordedRush(lock)
            removed_events = list_events(rush, kind)
            if how == "second":
                removed_events = removed_events[1:2]
            rush.history.events = [
                event for event in rush.history.events if event not in removed_events
            ]
            assert judge(rush, tmp_path).verdict == "unknown", (kind, how)


@pytest.mark.parametrize("name", ["amount", "order", "stock_seen", "fence", "key"])
def test_value_of_another_type_is_a_finding(name: str) -> None:
    """A field of an order has text, a fraction, a list or a truth value in place of a number."""
    values: list[Any] = ["1", 1.5, [], True]
    for value in values:
        if (name, value) == ("key", "1"):
            continue  # A key is text, so "1" has the right type.
        rush = RecordedRush()
        rush.history.orders[1][name] = value
        judgement = rush.judge()
        assert judgement.verdict == "unknown"
        assert f"has {name} {value!r}" in join_descriptions(judgement)


def test_orders_and_answers_need_their_fields_without_events_of_nodes() -> None:
    """In a load run the nodes record no events. The fields are then required all the same."""
    for name in ("fence", "amount", "product"):
        rush = RecordedRush("redis")
        rush.remove_node_events()
        remove_field(rush, None, name, how="all")
        assert rush.judge(nodes_recorded=False).violations[0] == "unrecorded", name
    rush = RecordedRush("redis")
    rush.remove_node_events()
    rush.change_sold_answers(fence=None)
    assert "unrecorded" in rush.judge(nodes_recorded=False).violations


def test_order_that_is_not_an_object_leaves_no_verdict() -> None:
    """The list of orders has None in place of the last one."""
    rush = RecordedRush("redis")
    orders: Any = rush.history.orders
    orders[-1] = None
    judgement = rush.judge()
    assert judgement.verdict == "unknown"
    assert "unrecorded" in judgement.violations
