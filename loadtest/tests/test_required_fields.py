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
    ONE_PER_EVIDENCE,
    PLANTS,
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
    return list(dict.fromkeys(map(get_kind, rush.history.events)))


def list_events(rush: RecordedRush, kind: Kind) -> list[Any]:
    return [event for event in rush.history.events if get_kind(event) == kind]


def list_required_names(record: dict[str, Any], kind: Kind | None) -> list[str]:
    """Return the fields of an order or an event that must not be missing.

    A field that is None is like a missing one. No rule compares the field `error`, nor the `node`
    that a buyer asked, which only some runs record.
    """
    optional_names = {"error"}
    if kind is None or kind[0] != "node":
        optional_names.add("node")
    return [
        name for name, value in record.items() if value is not None and name not in optional_names
    ]


def list_required_fields(rush: RecordedRush) -> Iterator[tuple[Kind | None, str]]:
    """Yield the kind of an event, or None for an order, with each field that it must have."""
    for name in list_required_names(rush.history.orders[0], None):
        yield None, name
    for kind in list_kinds(rush):
        for name in list_required_names(list_events(rush, kind)[0], kind):
            yield kind, name


def judge(rush: RecordedRush, folder: Path, **fields: Any) -> Judgement:
    """Judge a rush; `fields` are fields of the judgement.

    An event without one of the fields below is a damaged line of the history. Only reading a file
    replaces such a line, so the history is then written to a file and read.
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
    """Remove a field from the orders, or from the events of a kind.

    how  `all`; `once`: from the second record only; `None`: the field of all is set to None
    """
    records: list[Any] = list(rush.history.orders if kind is None else list_events(rush, kind))
    if how == "once":
        records = records[1:2]
    for record in records:
        if how == "None":
            record[name] = None
        else:
            record.pop(name, None)


@pytest.mark.parametrize("how", ["all", "once", "None"])
@pytest.mark.parametrize("lock", ONE_PER_EVIDENCE)
def test_missing_field_is_never_exact(lock: str, how: str, tmp_path: Path) -> None:
    """The finding names the field, unless the line is damaged."""
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
    """A violation is not hidden by a missing field that would show it."""
    plant, lock = PLANTS_BY_NAME[plant_name]
    for kind, name in list_required_fields(RecordedRush(lock)):
        rush = RecordedRush(lock)
        judgement_fields = plant(rush) or {}
        remove_field(rush, kind, name, how="all")
        assert judge(rush, tmp_path, **judgement_fields).verdict != "exact", (kind, name)


@pytest.mark.parametrize("lock", ALL_STRATEGIES)
def test_missing_events_are_never_exact(lock: str, tmp_path: Path) -> None:
    """All events of a kind are missing, or the second one."""
    for kind in list_kinds(RecordedRush(lock)):
        for how in ("all", "once"):
            rush = RecordedRush(lock)
            removed_events = list_events(rush, kind)
            if how == "once":
                removed_events = removed_events[1:2]
            rush.history.events = [
                event for event in rush.history.events if event not in removed_events
            ]
            assert judge(rush, tmp_path).verdict == "unknown", (kind, how)


@pytest.mark.parametrize("name", ["amount", "order", "stock_seen", "fence", "key"])
def test_value_of_another_type_is_a_finding(name: str) -> None:
    """Such a value does not end the judge with an exception."""
    values: list[Any] = ["1", 1.5, [], True]
    for value in values:
        if (name, value) == ("key", "1"):
            continue  # a key is text
        rush = RecordedRush()
        rush.history.orders[1][name] = value
        judgement = rush.judge()
        assert judgement.verdict == "unknown"
        assert f"has {name} {value!r}" in join_descriptions(judgement)


def test_orders_and_answers_need_their_fields_without_events_of_nodes() -> None:
    """The nodes of `load` record no events. An order of a fenced strategy still has a fence."""
    for name in ("fence", "amount", "product"):
        rush = RecordedRush("redis")
        rush.remove_node_events()
        remove_field(rush, None, name, how="all")
        assert rush.judge(nodes_recorded=False).violations[0] == "unrecorded", name
    rush = RecordedRush("redis")
    rush.remove_node_events()
    rush.change_sold_answers(fence=None)
    assert "unrecorded" in rush.judge(nodes_recorded=False).violations


def test_order_that_is_no_object_leaves_no_verdict() -> None:
    rush = RecordedRush("redis")
    orders: Any = rush.history.orders
    orders[-1] = None
    judgement = rush.judge()
    assert judgement.verdict == "unknown"
    assert "unrecorded" in judgement.violations
