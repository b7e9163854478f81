"""The fields that the record of a sale of this project's shop must have.

Most rules pass over a value that is missing, because a correct run may lack it: no answer came, or
a process was killed. So a value that the shop always has is required here; without this table a
field that is renamed would switch its rules off in silence. docs/history.md explains the events.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from loadtest.judge.evidence import Evidence

Fields = Mapping[str, type | tuple[type, ...]]

NUMBER = (int, float)
#: Of each order, as GET /sales/<id>/orders has it.
ORDER: Fields = {
    "order": int,
    "key": str,
    "buyer": str,
    "lock": str,
    "stock_seen": int,
    "product": str,
    "amount": int,
    "time": str,
}
#: Of each request of a buyer, of each answer, and of an answer that says `sold`.
REQUEST: Fields = {"lock": str, "product": str, "sale": int}
ANSWER: Fields = {**REQUEST, "outcome": str}
SOLD: Fields = {**ANSWER, "order": int, "replayed": bool, "sold_in": int, "stock_seen": int}
#: Of each event of a fault.
FAULT: Fields = {"phase": str, "what": str}
#: Of each event of a node.
NODE: Fields = {"node": str, "pid": int, "thread": int}
#: Of an event of a node, besides NODE, by its `f`.
BY_NODE: Mapping[str, Fields] = {
    "begins": {"lock": str, "product": str, "sale": int},
    "acquired": {"lock_name": str, "token": str, "waited_ms": NUMBER},
    "after_read": {"amount": int, "sale": int},
    "before_commit": {"order": int, "sale": int},
    "after_commit": {"sale": int},
    "release": {"token": str},
    "released": {"token": str, "outcome": str, "held_ms": NUMBER},
}
#: Of the event `reserved` of a strategy whose promise is the order.
PROMISED: Fields = {"order": int, "amount": int, "sale": int}
#: Of an order, an answer or a grant under a strategy with a fence.
FENCED: Fields = {"fence": int}
#: The event that comes before another one in the same request.
BEFORE: Mapping[str, str] = {
    "acquired": "acquire",
    "reserved": "reserve",
    "after_commit": "before_commit",
    "released": "release",
}


def fields_of_order(evidence: Evidence) -> Fields:
    """Return the fields that each order must have."""
    return {**ORDER, **FENCED} if evidence.fenced else ORDER


def fields_of_event(event: Mapping[str, Any], evidence: Evidence) -> Fields:
    """Return the fields that an event must have; none for a damaged line."""
    match event["by"], event["f"], event["type"]:
        case "buyer", _, "invoke":
            return REQUEST
        case "buyer", _, "ok":
            if event.get("replayed"):
                return SOLD
            of_lock: Fields = {"released": str} if evidence.locked else {}
            return {**SOLD, **of_lock, **(FENCED if evidence.fenced else {})}
        case "buyer", _, _:
            return ANSWER
        case "fault", _, _:
            return FAULT
        case "node", "acquired", _ if evidence.fenced:
            return {**NODE, **BY_NODE["acquired"], **FENCED}
        case "node", "reserved", _ if evidence.promises:
            return {**NODE, **PROMISED}
        case "node", kind, _:
            return {**NODE, **BY_NODE.get(kind, {})}
    return {}


def wrong_fields(values: Mapping[str, Any], fields: Fields) -> Iterator[str]:
    """Yield a phrase for each of these fields that is missing or has a value of another type."""
    for name, types in fields.items():
        if values.get(name) is None:
            yield f"has no {name}"
        elif not _is(values[name], types):
            yield f"has {name} {values[name]!r:.40}"


def readable_order(order: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the order without the values that no rule can compare. One without a number or without
    a key still counts as an order."""
    types: Fields = {**ORDER, **FENCED, "order": (int, str)}
    readable = {
        name: value for name, value in order.items() if name not in types or _is(value, types[name])
    }
    return {"order": "without a number", "key": "", **readable}


def _is(value: object, types: type | tuple[type, ...]) -> bool:
    """Return whether a value has one of these types; True and False are no numbers."""
    return isinstance(value, types) and (types is bool or not isinstance(value, bool))
