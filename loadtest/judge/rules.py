"""The rules of the judge: each finds what no correct sale shows, with the evidence.

No rule calls a correct sale broken: a missing answer may have been any, and a request may take
effect at any time after it was sent. The rules here are over orders and answers, and a sale that
breaks one is not exact, because its record is wrong. Those over locks are in lock_rules.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from math import inf

from loadtest.judge import integrity, lock_rules, stock_rules
from loadtest.judge.sale_record import Finding, Record, more

Rule = Callable[[Record], Finding | None]


def lost_update(record: Record) -> Finding | None:
    """Conservation: every order took one unit off the shelf, and nothing else took one."""
    sold, gone = record.units, record.initial_stock - record.stock_left
    if sold == gone:
        return None
    which = "decrements were erased" if sold > gone else "units went without an order"
    what = f"{len(record.orders)} orders took {gone} units: {abs(sold - gone)} {which}"
    return Finding("lost_update", what)


def wrong_amount(record: Record) -> Finding | None:
    """Each order is of one unit: nobody can ask for another number."""
    found = [order for order in record.orders if order.get("amount", 1) != 1]
    if not found:
        return None
    what = f"order {found[0]['order']} is of {found[0]['amount']} units, and one was asked for"
    return Finding("wrong_amount", what + more(found), tuple(str(o["key"]) for o in found))


def lost_ack(record: Record) -> Finding | None:
    """An order that an answer named exists, and belongs to the buyer who got the answer."""
    there = {(order["key"], order["order"]) for order in record.orders}
    lost = [
        (key, number)
        for key, numbers in record.acknowledged.items()
        for number in numbers
        if (key, number) not in there
    ]
    if not lost:
        return None
    key, number = lost[0]
    known = record.number_of.get(key)
    named = "sold, without a number" if number is None else f"with order {number}"
    instead = f"it has order {known}"
    if known is None:
        owner = next((o["key"] for o in record.orders if o["order"] == number), None)
        instead = "there is none" if owner is None else f"that is {owner}'s"
    what = f"{key} was answered {named}; {instead}{more(lost)}"
    return Finding("lost_ack", what, tuple(key for key, _ in lost))


def false_sold_out(record: Record) -> Finding | None:
    """Nobody is answered `sold_out` before all units can be gone, or while having an order."""
    answers = [
        (request.attempt, request.answered or inf)
        for request in record.requests
        if request.outcome == "sold_out"
    ]
    answers += [
        (buyer.key, inf)
        for buyer in record.replies
        if buyer.outcome == "sold_out" and buyer.key not in record.requests_of
    ]
    gone = _could_have_gone(record)
    owners = [key for key, _ in answers if key in record.number_of]
    early = [
        (bisect_left(gone, when), key)
        for key, when in answers
        if bisect_left(gone, when) < record.initial_stock
    ]
    if early:
        units, key = early[0]
        what = (
            f"{key} was answered sold_out when at most {units} of {record.initial_stock} units "
            "had gone"
        )
    elif owners:
        what = f"{owners[0]} was answered sold_out and has order {record.number_of[owners[0]]}"
    else:
        return None
    cases = [key for _, key in early] or owners
    return Finding("false_sold_out", what + more(cases), tuple(cases))


def _could_have_gone(record: Record) -> list[float]:
    """The earliest time at which each order's unit can have gone, sorted: when the counter reserved
    it, else when its node read the stock, else when the node began to commit, else when its buyer
    first asked, else any time."""
    begun: dict[str, float] = {}
    for event in record.history.events:
        if event["f"] == "reserve":
            begun.setdefault(event["attempt"], event["t"])
    for commit in record.commits:
        begun.setdefault(commit.attempt, commit.begun if commit.read_at is None else commit.read_at)
    for request in record.requests:
        begun.setdefault(request.attempt, request.sent)
    return sorted(begun.get(order["key"], -inf) for order in record.orders)


def false_refusal(record: Record) -> Finding | None:
    """A refused request sold nothing, and a replay needs an earlier order. For `sold_out` to a
    buyer who has an order see false_sold_out."""
    found = _sold_and_refused(record)
    if found:
        return Finding("false_refusal", found[0][1] + more(found), tuple(key for key, _ in found))
    found = _replayed_after_refusals(record)
    if found:
        return Finding("false_refusal", found[0][1] + more(found), tuple(key for key, _ in found))
    refused = [
        buyer.key
        for buyer in record.buyers
        if buyer.key in record.number_of
        and buyer.key not in record.acknowledged
        and record.was_refused(buyer)
        and not _was_answered(record, buyer.key, "sold_out")
    ]
    if not refused:
        return None
    key = refused[0]
    what = f"{key} was refused and has order {record.number_of[key]}{more(refused)}"
    return Finding("false_refusal", what, tuple(refused))


def _sold_and_refused(record: Record) -> list[tuple[str, str]]:
    """Orders that a node committed in a request that was refused, and in no other."""
    found = []
    for number, commit in record.commit_of.items():
        asked = [r for r in record.requests_of.get(commit.attempt, ()) if r.covers(commit.begun)]
        if asked and all(request.type == "fail" for request in asked):
            what = f"was answered {asked[0].outcome} by the request that sold order {number}"
            found.append((commit.attempt, f"{commit.attempt} {what}"))
    return found


def _replayed_after_refusals(record: Record) -> list[tuple[str, str]]:
    """Answers that replay an order though every answer before them was a definite no."""
    found = []
    for key, asked in record.requests_of.items():
        for place, request in enumerate(asked):
            if request.replayed and all(before.type == "fail" for before in asked[:place]):
                what = f"{key} was only ever refused, and then answered with an earlier order"
                found.append((key, what))
                break
    return found


def _was_answered(record: Record, key: str, outcome: str) -> bool:
    asked = record.requests_of.get(key)
    if asked is not None:
        return any(request.outcome == outcome for request in asked)
    return any(buyer.key == key and buyer.outcome == outcome for buyer in record.replies)


def ghost_order(record: Record) -> Finding | None:
    """Every order has the key of somebody who asked."""
    asked = {buyer.key for buyer in record.buyers}
    found = [order for order in record.orders if order["key"] not in asked]
    if not found:
        return None
    what = f"order {found[0]['order']} has the key {found[0]['key']}, which nobody sent"
    return Finding("ghost_order", what + more(found), tuple(str(o["key"]) for o in found))


def double_order(record: Record) -> Finding | None:
    """One attempt has one order, and its answers name one."""
    times = Counter(order["key"] for order in record.orders)
    found = [key for key, count in times.items() if count > 1]
    found += [
        key for key, numbers in record.acknowledged.items() if len(numbers) > 1 and times[key] < 2
    ]
    if not found:
        return None
    key = found[0]
    numbers = {order["order"] for order in record.orders if order["key"] == key}
    numbers |= {number for number in record.acknowledged.get(key, ()) if number is not None}
    what = f"{key} has the orders {', '.join(map(str, sorted(numbers)))}{more(found)}"
    return Finding("double_order", what, tuple(found))


RULES: tuple[Rule, ...] = (
    integrity.broken_history,
    integrity.wrong_stock,
    integrity.unrecorded,
    integrity.outside_request,
    integrity.foreign_key,
    integrity.wrong_lock,
    integrity.contradiction,
    integrity.commit_order,
    lost_update,
    wrong_amount,
    lost_ack,
    false_sold_out,
    lock_rules.fence_fell_over_orders,
    lock_rules.fence_fell_over_grants,
    lock_rules.overlap,
    lock_rules.false_release,
    stock_rules.stale_write,
    stock_rules.stock_that_was_not_there,
    stock_rules.unit_sold_twice,
    stock_rules.sold_out_with_units_left,
    lock_rules.unlocked,
    lock_rules.expired_hold,
    lock_rules.wrong_fence,
    lock_rules.shared_token,
    false_refusal,
    ghost_order,
    double_order,
)


def find(record: Record) -> list[Finding]:
    """The findings of all rules, in their order."""
    return [finding for rule in RULES if (finding := rule(record)) is not None]
