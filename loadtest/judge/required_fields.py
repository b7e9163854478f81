"""The fields that the record of a sale of this project's shop must have.

Most rules skip a missing value, because it may be missing in a correct run: a request had no
answer, or a process was killed. But if the shop renamed a field, these rules would find nothing,
and a wrong sale would look correct. So the tables here list the fields that the shop always
records, and a missing field is a finding. docs/history.md explains the events.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from loadtest.judge.mechanism import Mechanism

#: Name of a field -> the type or the types that its value may have.
Fields = Mapping[str, type | tuple[type, ...]]

NUMBER_TYPES = (int, float)
#: The fields of an order, as GET /sales/<id>/orders lists it.
ORDER_FIELDS: Fields = {
    "order": int,
    "key": str,
    "buyer": str,
    "lock": str,
    "stock_seen": int,
    "product": str,
    "amount": int,
    "time": str,
}
#: The fields of a buyer's event on a request.
REQUEST_FIELDS: Fields = {"lock": str, "product": str, "sale": int}
#: The fields of a buyer's event on an answer.
ANSWER_FIELDS: Fields = {**REQUEST_FIELDS, "outcome": str}
#: The fields of a buyer's event on the answer `sold`.
SOLD_FIELDS: Fields = {
    **ANSWER_FIELDS,
    "order": int,
    "replayed": bool,
    "sold_in": int,
    "stock_seen": int,
}
#: The fields of an event of a fault.
FAULT_FIELDS: Fields = {"phase": str, "what": str}
#: The fields of every event of a node.
NODE_FIELDS: Fields = {"node": str, "pid": int, "thread": int}
#: Kind (`f`) of a node's event -> further fields of the event.
NODE_FIELDS_BY_EVENT: Mapping[str, Fields] = {
    "begins": {"lock": str, "product": str, "sale": int},
    "acquired": {"lock_name": str, "token": str, "waited_ms": NUMBER_TYPES},
    "after_read": {"amount": int, "sale": int},
    "before_commit": {"order": int, "sale": int},
    "after_commit": {"sale": int},
    "release": {"token": str},
    "released": {"token": str, "outcome": str, "held_ms": NUMBER_TYPES},
}
#: Further fields of the event `reserved` under a strategy that promises orders.
PROMISE_FIELDS: Fields = {"order": int, "amount": int, "sale": int}
#: Further fields of an order, an answer `sold` and an event `acquired` of a strategy with a fence.
FENCE_FIELDS: Fields = {"fence": int}
#: Kind of an event -> kind of the event that must precede it in the same request.
PRECEDING_EVENTS: Mapping[str, str] = {
    "acquired": "acquire",
    "reserved": "reserve",
    "after_commit": "before_commit",
    "released": "release",
}


def list_fields_of_order(mechanism: Mechanism) -> Fields:
    """Return the fields that each order must have."""
    return {**ORDER_FIELDS, **FENCE_FIELDS} if mechanism.fenced else ORDER_FIELDS


def list_fields_of_event(event: Mapping[str, Any], mechanism: Mechanism) -> Fields:
    """Return the fields that an event must have, and their types.

    The fields depend on the event's recorder (`by`), its kind (`f`) and its type.
    """
    match event["by"], event["f"], event["type"]:
        case "buyer", _, "invoke":
            return REQUEST_FIELDS
        case "buyer", _, "ok":
            if event.get("replayed"):  # a replayed request takes no lock
                return SOLD_FIELDS
            release_fields: Fields = {"released": str} if mechanism.locked else {}
            fence_fields: Fields = FENCE_FIELDS if mechanism.fenced else {}
            return {**SOLD_FIELDS, **release_fields, **fence_fields}
        case "buyer", _, _:
            return ANSWER_FIELDS
        case "fault", _, _:
            return FAULT_FIELDS
        case "node", "acquired", _ if mechanism.fenced:
            return {**NODE_FIELDS, **NODE_FIELDS_BY_EVENT["acquired"], **FENCE_FIELDS}
        case "node", "reserved", _ if mechanism.promises:
            return {**NODE_FIELDS, **PROMISE_FIELDS}
        case "node", kind, _:
            return {**NODE_FIELDS, **NODE_FIELDS_BY_EVENT.get(kind, {})}
    return {}  # the event replaces a damaged line of the history


def describe_wrong_fields(values: Mapping[str, Any], fields: Fields) -> Iterator[str]:
    """Yield a phrase, such as "has no fence", for each field that is missing or of a wrong type."""
    for name, types in fields.items():
        if values.get(name) is None:
            yield f"has no {name}"
        elif not _has_type(values[name], types):
            yield f"has {name} {values[name]!r:.40}"


def make_order_comparable(order: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the order without values of a wrong type, so that the rules can compare its values.

    An order without a number (`order`) gets the number "without a number", and an order without a
    key gets an empty key. So the order still counts as a sold unit.
    """
    types: Fields = {**ORDER_FIELDS, **FENCE_FIELDS, "order": (int, str)}
    comparable_values = {
        name: value
        for name, value in order.items()
        if name not in types or _has_type(value, types[name])
    }
    return {"order": "without a number", "key": "", **comparable_values}


def _has_type(value: object, types: type | tuple[type, ...]) -> bool:
    """Return whether a value has one of these types. True and False are not numbers."""
    return isinstance(value, types) and (types is bool or not isinstance(value, bool))
