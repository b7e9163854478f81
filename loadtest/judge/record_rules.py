"""The rules on the record of a sale itself: it is complete, and its parts agree with each other.

If the nodes recorded events, the record shows for each order the request, the lock and the sale in
which it was sold. If the record has gaps or contradictions, the verdict is `unknown`. It is still
`oversold` if there are too many orders, because this needs no other evidence.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any

from loadtest.judge.finding import Case, make_order_case
from loadtest.judge.history import DAMAGED, Event
from loadtest.judge.intervals import Commit, LockHold, Request, get_attempt_thread, group_by
from loadtest.judge.mechanism import Mechanism
from loadtest.judge.outcomes import BEGUN_OUTCOMES, OUTCOMES
from loadtest.judge.required_fields import (
    PRECEDING_EVENTS,
    describe_wrong_fields,
    list_fields_of_event,
    list_fields_of_order,
    make_order_comparable,
)
from loadtest.judge.rule import rule
from loadtest.judge.sale_record import SaleRecord

#: Tolerated difference between the clocks of nodes and servers.
MAX_CLOCK_DIFFERENCE_SECONDS = 5.0


@rule("broken_history", voids_record=True)
def broken_history(record: SaleRecord) -> Iterator[Case]:
    """Rule: every line of the history is an event."""
    for event in record.events:
        if event["by"] == DAMAGED:
            yield Case(event.get("what", ""))


@rule("wrong_stock", voids_record=True)
def wrong_stock(record: SaleRecord) -> Iterator[Case]:
    """Rule: the sale opened with the number of units that the run requested."""
    if record.opening_stock != record.initial_stock:
        yield Case(
            f"the sale opened with {record.opening_stock} units, and {record.initial_stock} were "
            "requested"
        )


# --- no part is missing --------------------------------------------------------------------------


@rule("unrecorded", voids_record=True, needs_node_records=True)
def unrecorded(record: SaleRecord) -> Iterator[Case]:
    """Rule: the nodes recorded every step of the purchases that the orders and answers show.

    They recorded the commit of each order, the steps before each answer, and the end of each hold
    (the time from the grant of a lock to its release).
    """
    for order in record.orders:
        if order["order"] not in record.commits_by_order:
            yield make_order_case(order, "has no commit that a node recorded")
    for request in record.requests:
        key = request.attempt
        gap = _describe_gap_before_answer(request, record.node_events_by_key.get(key, []))
        if gap:
            yield Case(f"{key} was answered {request.outcome}, and no node {gap}", key)
    for hold in record.holds:
        gap = _describe_gap_after_hold(record, hold)
        if gap:
            yield Case(f"{hold.attempt} held the lock, and its node did not record {gap}")


def _describe_gap_before_answer(request: Request, node_events: Sequence[Event]) -> str:
    """Return which step before an answer was not recorded; empty if all were.

    The text follows "no node" in a message.

    node_events  the events of the buyer's attempt that nodes recorded
    """
    if request.outcome not in BEGUN_OUTCOMES or request.answered_at is None:
        return ""
    kinds = {
        event["f"] for event in node_events if request.sent_at <= event["t"] <= request.answered_at
    }
    if "arrives" not in kinds:
        return "recorded its request"
    if "begins" not in kinds:
        return "recorded which strategy it ran"
    if request.outcome == "sold_out" and not kinds & {"after_read", "reserve"}:
        return "recorded a read of the stock"
    return ""


def _describe_gap_after_hold(record: SaleRecord, hold: LockHold) -> str:
    """Return which part of a hold's end was not recorded; empty if nothing is missing.

    A hold is the time from the grant of a lock to its release.
    The text follows "its node did not record" in a message.

    If the holder's request has no answer, or one that leaves the purchase open (type `info`), the
    node may have been killed. Then its events are not required.
    """
    requests = [
        request
        for request in record.requests_by_key.get(hold.attempt, ())
        if request.may_be_active_at(hold.start)
    ]
    if not requests or any(request.type == "info" for request in requests):
        return ""
    if not hold.is_released:
        return "that it released the lock"
    if not hold.release_outcome:
        return "how the release ended"
    return ""


@rule("unrecorded", voids_record=True)
def missing_fields(record: SaleRecord) -> Iterator[Case]:
    """Rule: each order, answer and event has the fields that the judge compares.

    A third-party shop may leave out any of these fields, so the rule does not apply to it.
    """
    if not (record.is_own_shop or record.nodes_recorded):
        return
    mechanism = record.mechanism
    for order in record.listed_orders:
        for problem in describe_wrong_fields(order, list_fields_of_order(mechanism)):
            yield make_order_case(make_order_comparable(order), problem)
    for event in record.events:
        if event["by"] in {"node", "fault"} and not record.nodes_recorded:
            continue
        for problem in describe_wrong_fields(event, list_fields_of_event(event, mechanism)):
            buyer = event.get("attempt", "all")  # the event of a fault concerns all buyers
            yield Case(
                f"the {event['by']}'s event {event['f']} ({event['type']}) of {buyer} {problem}"
            )


@rule("unrecorded", voids_record=True, needs_node_records=True)
def missing_events(record: SaleRecord) -> Iterator[Case]:
    """Rule: before each event, the node recorded the events that must precede it."""
    for key, events in record.node_events_by_key.items():
        for thread_events in group_by(events, get_attempt_thread).values():
            gap = _find_first_gap(thread_events, record.mechanism)
            if gap is not None:
                kind, missing_kind = gap
                yield Case(
                    f"a node recorded {kind}, and no {missing_kind} before it for {key}", key
                )


def _find_first_gap(events: Sequence[Event], mechanism: Mechanism) -> tuple[str, str] | None:
    """Return the kind of the first event that lacks its preceding event, and the missing kind.

    events  the events of one thread that worked on one attempt
    """
    kinds: set[str] = set()
    for event in events:
        kind = event["f"]
        for preceding_kind in _list_preceding_kinds(kind, mechanism):
            if preceding_kind not in kinds:
                return kind, preceding_kind
        kinds.add(kind)
    return None


def _list_preceding_kinds(kind: str, mechanism: Mechanism) -> list[str]:
    """Return the kinds of events that must precede an event of this kind in its request."""
    if kind == "before_commit":
        return ["after_read", "reserved"] if mechanism.reserves else ["after_read"]
    return [PRECEDING_EVENTS[kind]] if kind in PRECEDING_EVENTS else []


# --- requests and buyers -------------------------------------------------------------------------


@rule("outside_request", voids_record=True, needs_node_records=True)
def outside_request(record: SaleRecord) -> Iterator[Case]:
    """Rule: a node records the events of an attempt only between a request and its answer."""
    for key, events in record.node_events_by_key.items():
        requests = record.requests_by_key.get(key, ())
        if not requests:
            kind = events[0]["f"]
            yield Case(f"a node recorded {kind} of {key}, but no buyer sent this key", key)
            continue
        for event in events:
            if any(request.may_be_active_at(event["t"]) for request in requests):
                continue
            distances_ns = [abs(event["t"] - request.sent_at) for request in requests]
            yield Case(
                f"node {event.get('node', '')} recorded {event['f']} of {key} outside of its "
                f"requests, {min(distances_ns) / 1e6:.1f} ms from the sending of the nearest one",
                key,
            )
            break  # one case for each buyer


@rule("wrong_answer", voids_record=True)
def wrong_answer(record: SaleRecord) -> Iterator[Case]:
    """Rule: each request has at most one answer, whose event has the type of its outcome.

    The types are those of OUTCOMES. Only the outcome `error` may also have the type `info`: then
    the purchase may have happened.
    """
    waiting_keys: set[str] = set()  # buyers with a request that is not answered yet
    for event in record.events:
        if event["by"] != "buyer":
            continue
        key = event["attempt"]
        event_type = event["type"]
        if event_type == "invoke":
            waiting_keys.add(key)
            continue
        outcome = event.get("outcome") or ""
        if key not in waiting_keys:
            answer = outcome or "without an outcome"
            yield Case(f"{key} was answered {answer}, but had no open request", key)
        elif outcome in OUTCOMES and (outcome, event_type) != ("error", "info"):
            expected_type = OUTCOMES[outcome].event_type
            if event_type != expected_type:
                yield Case(
                    f"{key}'s answer {outcome} has the type {event_type} instead of "
                    f"{expected_type}",
                    key,
                )
        waiting_keys.discard(key)


@rule("foreign_key", voids_record=True)
def foreign_key(record: SaleRecord) -> Iterator[Case]:
    """Rule: each request has the Idempotency-Key of a buyer of the run."""
    run_keys = set(record.buyer_keys)
    for key in record.last_requests:
        if run_keys and key not in run_keys:
            yield Case(f"{key} sent a request, but is not a buyer of the run", key)


# --- no part contradicts another -----------------------------------------------------------------


@rule("wrong_lock", voids_record=True)
def wrong_lock(record: SaleRecord) -> Iterator[Case]:
    """Rule: each order has the run's strategy, and each node event the run's strategy and product.

    The name of a lock in a node event must be that of this strategy and this product.
    """
    strategy = record.strategy
    if not strategy:
        return
    for order in record.orders:
        order_strategy = order.get("lock", strategy)
        if order_strategy != strategy:
            difference = f"was sold under strategy {order_strategy!r} instead of {strategy!r}"
            yield make_order_case(order, difference)
    for event in record.events:
        difference = _describe_difference_from_run(record, event)
        if difference:
            key = event.get("attempt", "")
            yield Case(f"{key} {difference}", key)


def _describe_difference_from_run(record: SaleRecord, event: Event) -> str:
    """Return how a node's event differs from the strategy and the product of the run.

    Empty if it does not differ. The text follows the key of the buyer in a message.
    """
    strategy = record.strategy
    product = record.product
    lock_name = f"{strategy}:{product}"
    if event["by"] != "node":
        return ""
    # `f` is the kind of the event. The field `lock` of a `begins` has the name of the strategy.
    if event["f"] == "begins" and event.get("lock", strategy) != strategy:
        return f"was served under strategy {event['lock']!r} instead of {strategy!r}"
    if product and event.get("product", product) != product:
        return f"was sold {event['product']} instead of {product}"
    if product and event.get("lock_name", lock_name) != lock_name:
        return f"took the lock {event['lock_name']} instead of {lock_name}"
    return ""


@rule("contradiction", voids_record=True)
def contradiction(record: SaleRecord) -> Iterator[Case]:
    """Rule: the database, the node and the answer to the buyer agree on each order.

    They must agree on its product, sale, buyer, fence, the stock that the purchase saw, and the
    outcome of the lock's release. No node recorded an event of another sale. No order was committed
    twice.
    """
    sold_requests = (request for request in record.requests if request.type == "ok")
    answers_by_order = group_by(sold_requests, attrgetter("attempt", "order"))
    for order in record.orders:
        answers = answers_by_order.get((order["key"], order["order"]), [])
        difference = (
            _describe_difference_from_commit(record, order)
            or _describe_difference_from_answers(record, order, answers)
            or _describe_difference_from_request(record, order)
        )
        if difference:
            yield make_order_case(order, difference)
    yield from _find_events_of_other_sales(record)
    if record.nodes_recorded:
        yield from _find_orders_committed_twice(record)


def _describe_difference_from_commit(record: SaleRecord, order: Mapping[str, Any]) -> str:
    """Return how an order differs from the commit that a node recorded; empty if it does not.

    The text follows "order 7" in a message.
    """
    commit = record.commits_by_order.get(order["order"])
    if commit is None or not record.nodes_recorded:
        return ""
    stock_seen = order.get("stock_seen")
    if _differ(commit.stock_seen, stock_seen):
        return f"was sold from a stock of {stock_seen}, but its node read {commit.stock_seen}"
    if record.sale and commit.sale != record.sale:
        return f"belongs to sale {record.sale}, but its node recorded sale {commit.sale}"
    return ""


def _describe_difference_from_answers(
    record: SaleRecord, order: Mapping[str, Any], answers: Sequence[Request]
) -> str:
    """Return how an order differs from the answers to its buyer; empty if it does not.

    Each text follows "order 7" in a message.
    """
    stock_seen = order.get("stock_seen")
    fence = order.get("fence")
    commit = record.commits_by_order.get(order["order"])
    release_outcome = "" if commit is None or commit.hold is None else commit.hold.release_outcome
    for answer in answers:
        if _differ(answer.stock_seen, stock_seen):
            return (
                f"was sold from a stock of {stock_seen}, and its buyer was answered with a stock "
                f"of {answer.stock_seen}"
            )
        if record.mechanism.fenced and not answer.replayed and answer.fence != fence:
            return f"has fence {fence}, and its buyer was answered with fence {answer.fence}"
        # A replay answers with an order that an earlier request made. The answer does not contain
        # the outcome of the release in that earlier request.
        is_release_known = release_outcome != "" and answer.released != ""
        release_differs = is_release_known and answer.released != release_outcome
        if release_differs and not answer.replayed:
            return (
                f"had the release outcome {release_outcome}, and its buyer was answered with the "
                f"release outcome {answer.released}"
            )
        if record.sale and answer.sold_in not in (None, record.sale):
            return (
                f"belongs to sale {record.sale}, and its buyer was answered with sale "
                f"{answer.sold_in}"
            )
    return ""


def _describe_difference_from_request(record: SaleRecord, order: Mapping[str, Any]) -> str:
    """Return how an order differs from its buyer's request; empty if it does not."""
    key = order["key"]
    buyer = key.rpartition("/")[2]  # a key ends in `/<name of the buyer>`
    if order.get("buyer", buyer) != buyer:
        return f"belongs to {order['buyer']}, but has the key {key}"
    if record.product and order.get("product", record.product) != record.product:
        return f"is of {order['product']}, and {record.product} was requested"
    return ""


def _differ(first: int | None, second: int | None) -> bool:
    """Return whether two values are known and differ."""
    return first is not None and second is not None and first != second


def _find_events_of_other_sales(record: SaleRecord) -> Iterator[Case]:
    """Yield a case for each node event with the number of another sale."""
    if not record.sale:
        return
    for event in record.events:
        sale = event.get("sale")
        if event["by"] == "node" and sale not in (None, record.sale):
            key = event["attempt"]
            yield Case(
                f"{key} requested sale {record.sale}, and {event['f']} was of sale {sale}", key
            )


def _find_orders_committed_twice(record: SaleRecord) -> Iterator[Case]:
    """Yield a case for each order number with several commits.

    A commit that a failover may have undone does not count.
    """
    counts = Counter(
        commit.order for commit in record.commits if not _may_have_been_undone(record, commit)
    )
    for number, count in counts.items():
        if number is not None and count > 1:
            yield Case(f"order {number} was recorded {count} times by the nodes")


def _may_have_been_undone(record: SaleRecord, commit: Commit) -> bool:
    """Return whether a failover may have undone a commit.

    Then another order may have the number of the undone order.

    A commit may have been undone in two cases:

    - the buyer was answered with the number of this order but does not have the order (`lost_ack`)
    - the end of the commit was not recorded, and the request has no answer, or one that leaves the
      purchase open (type `info`)
    """
    key = commit.attempt
    was_acknowledged = commit.order in record.acknowledged_numbers_by_key.get(key, ())
    if was_acknowledged and commit.order != record.order_numbers_by_key.get(key):
        return True
    may_have_happened = any(
        request.type == "info" and request.may_be_active_at(commit.begun_at)
        for request in record.requests_by_key.get(key, ())
    )
    return commit.done_at is None and may_have_happened


# --- times ---------------------------------------------------------------------------------------


@rule("wrong_time")
def wrong_time(record: SaleRecord) -> Iterator[Case]:
    """Rule: the time between the first and the last order is at most the duration of the rush.

    A rush is the time in which buyers send requests. The clocks of two nodes may differ by
    MAX_CLOCK_DIFFERENCE_SECONDS. The rule applies to this project's shop only, and not under a
    fault, because a fault may change a clock.
    """
    if not (record.is_own_shop and record.undisturbed and record.requests):
        return
    first_sent_at = min(request.sent_at for request in record.requests)
    last_seen_at = max(request.last_seen_at for request in record.requests)
    rush_seconds = (last_seen_at - first_sent_at) / 1e9
    dated_orders = [order for order in record.orders if "time" in order]
    if not dated_orders:
        return
    times = [(_parse_order_time(order), order["order"]) for order in dated_orders]
    times.sort(key=itemgetter(0))
    first_time, first_order = times[0]
    last_time, last_order = times[-1]
    distance_seconds = last_time - first_time
    if distance_seconds > rush_seconds + MAX_CLOCK_DIFFERENCE_SECONDS:
        yield Case(
            f"the times of orders {first_order} and {last_order} are {distance_seconds:.0f} s "
            f"apart, and the rush took {rush_seconds:.1f} s"
        )


def _parse_order_time(order: Mapping[str, Any]) -> float:
    """Return the field `time` of an order in seconds since 1970; 0 if it is malformed."""
    try:
        return datetime.fromisoformat(order["time"]).timestamp()
    except ValueError:
        return 0.0


@rule("commit_order", voids_record=True)
def commit_order(record: SaleRecord) -> Iterator[Case]:
    """Rule: orders are committed in the order of their numbers.

    Under most strategies each buyer writes the product's row before it inserts its order, and no
    other buyer can write that row until the commit. So a violation means that the record is wrong,
    perhaps because of a node's clock.

    Under strategies whose buyers write different rows, purchases overlap, and order 8 may be
    committed before order 7. Then a weaker rule applies: if the stock was read for an order only
    after another order had been answered, the answered order has the smaller number.

    Neither rule applies to a strategy whose Mechanism.commits_in_number_order is False.
    """
    if not record.mechanism.commits_in_number_order:
        return
    if not record.mechanism.writes_product_row_first:
        yield from _find_late_reads(record)
        return
    begun_at_by_number = {
        number: commit.begun_at for number, commit in record.commits_by_order.items()
    }
    orders = [
        order for order in record.orders_sorted_by_number if order["order"] in begun_at_by_number
    ]
    for first, second in pairwise(orders):
        lead_ns = begun_at_by_number[first["order"]] - begun_at_by_number[second["order"]]
        if lead_ns >= 0:
            yield Case(
                f"order {second['order']} began to be committed {lead_ns / 1e6:.1f} ms before "
                f"order {first['order']}",
                first["key"],
                second["key"],
            )


def _find_late_reads(record: SaleRecord) -> Iterator[Case]:
    """Yield a case for each order whose number contradicts the times of reads and answers.

    An order gets its number after the stock was read for it. So if the stock was read for order B
    only after order A had been answered, B must have a higher number than A.
    """
    answered_at_by_number = {
        request.order: request.answered_at
        for request in record.requests
        if request.type == "ok" and request.answered_at
    }
    # The order with the latest read among the orders with smaller numbers.
    last_read_at = -1
    last_read_order: Mapping[str, Any] = {}
    for order in record.orders_sorted_by_number:
        number = order["order"]
        answered_at = answered_at_by_number.get(number)
        if answered_at is not None and answered_at < last_read_at:
            lead_ms = (last_read_at - answered_at) / 1e6
            yield Case(
                f"order {number} was answered {lead_ms:.1f} ms before the stock was read for "
                f"order {last_read_order['order']}",
                last_read_order["key"],
                order["key"],
            )
        commit = record.commits_by_order.get(number)
        if commit is not None and commit.read_at is not None and commit.read_at > last_read_at:
            last_read_at = commit.read_at
            last_read_order = order
