"""The story of a broken sale: the buyers and faults that matter, one event per line.

0.000 s  victim (node A) has the lock, fence 7
0.004 s  victim reads a stock of 10
0.010 s  fault: node A stopped with SIGSTOP (pids 12, 13)
1.020 s  rival-1 (node B) has the lock, fence 8: two holders
1.021 s  rival-1 reads a stock of 10
2.551 s  victim sells order 31, writes back 9
2.560 s  rival-1 sells order 32, writes back 9: the decrement of order 31 is lost
...      and 9 more sold, last sold out at 3.9 s: 11 orders for 10 units
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import attrgetter

from loadtest.judge.finding import Finding, format_count
from loadtest.judge.history import Event
from loadtest.judge.intervals import Commit, LockHold, ProductHistory, group_by
from loadtest.judge.outcomes import RETRIED_REFUSALS
from loadtest.judge.verdict import Judgement

#: The maximum number of lines of a story, including the last one, which sums up the rest.
MAX_LINES = 14
#: The maximum number of buyers whose steps are shown: the cast of the story.
MAX_FOLLOWED_BUYERS = 3
#: The rules whose findings explain a broken sale, the best explanation first.
EXPLAINING_RULES = ("stale_write", "overlap", "fence_fell", "double_order", "false_sold_out")
#: The outcome of a release that failed -> the words after "releases, and".
RELEASE_WORDS = {"expired": "finds that the lock was not its own", "unknown": "gets no answer"}
#: A buyer's request stops at a point of the purchase where it was told to wait. A stop at these
#: points gets no line, because the read or the order there has one already.
POINTS_WITH_OTHER_LINES = ("after_read", "after_commit")
#: The number of holders -> its word.
NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}


class Weight(IntEnum):
    """The importance of a line. If a story is too long, the lowest weights are omitted first."""

    #: The evidence of a fault.
    EVIDENCE = 0
    #: An answer that explains no finding, or a release that failed.
    ANSWER = 1
    #: A read, or a hold of the lock by one buyer alone.
    STEP = 2
    #: An order, a stop at a point, the first hold of the lock, or a sign that the lock failed.
    TURNING_POINT = 3
    FAULT = 4


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the story.

    t  its time, in nanoseconds
    """

    t: int
    weight: Weight
    text: str


def tell_story(judgement: Judgement) -> list[str]:
    """Return at most MAX_LINES lines, each with the seconds since the first line and an event.

    The story follows the few buyers that _choose_followed_buyers() returns.
    """
    cast = _choose_followed_buyers(judgement)
    order_lines = _make_order_lines(judgement, cast)
    lines = list(_make_lock_lines(judgement, cast)) + list(_make_step_lines(judgement, cast))
    lines += order_lines
    lines += _make_answer_lines(judgement, cast)
    lines.sort(key=attrgetter("t"))
    lines.sort(key=attrgetter("weight"), reverse=True)  # stable: equal weights stay sorted by time
    shown_lines = sorted(lines[: MAX_LINES - 1], key=attrgetter("t"))
    start = 0
    if shown_lines:
        start = shown_lines[0].t
    texts = [f"{(line.t - start) / 1e9:6.3f} s  {line.text}" for line in shown_lines]
    unlisted_orders = len(judgement.orders) - sum(line in shown_lines for line in order_lines)
    texts.append(f" ...      {_summarize_rest(judgement, start, unlisted_orders)}")
    return texts


def get_buyer_name(attempt: str) -> str:
    """Return a buyer's name: the last part of its attempt's id."""
    return attempt.rpartition("/")[2]


def find_last_commits(history: ProductHistory) -> dict[str, Commit]:
    """Return the last commit of each attempt; the earlier ones failed.

    A `sold` answer proves its commit. If the commit was not recorded, it gets the answer's time.
    """
    # Copies, because the commits of the history must stay as they were recorded.
    commits = {commit.attempt: replace(commit) for commit in history.commits}
    for request in history.requests:
        if request.type == "ok" and request.answered_at is not None:
            commit = commits.setdefault(
                request.attempt, Commit(request.attempt, request.answered_at)
            )
            commit.done_at = commit.done_at or commit.begun_at
            commit.order = request.order or commit.order
    return commits


def _choose_followed_buyers(judgement: Judgement) -> list[str]:
    """Return the attempts that the story follows, at most MAX_FOLLOWED_BUYERS.

    They are the first two attempts of each finding, and the victims of the fault. If these are
    fewer than two attempts, the rivals of the victims, the holders of the lock and all other
    attempts are added, in this order.
    """
    ranks = {rule: rank for rank, rule in enumerate(EXPLAINING_RULES)}

    def rank_of(finding: Finding) -> int:
        return ranks.get(finding.rule, len(ranks))

    findings = sorted(judgement.findings, key=rank_of)
    attempts = [event["attempt"] for event in judgement.events if "attempt" in event]
    victims = [attempt for attempt in attempts if get_buyer_name(attempt).startswith("victim")]
    rivals = [attempt for attempt in attempts if get_buyer_name(attempt).startswith("rival")]
    cast: list[str] = []
    for finding in findings:
        cast += finding.attempts[:2]
    cast += victims
    if len(set(cast)) < 2:
        cast += sorted(rivals, key=get_buyer_name)
        cast += [hold.attempt for hold in judgement.holds]
        cast += attempts
    without_repetitions = dict.fromkeys(cast)
    return list(without_repetitions)[:MAX_FOLLOWED_BUYERS]


def _make_lock_lines(judgement: Judgement, cast: Sequence[str]) -> Iterator[Line]:
    """Yield a line for each time that a buyer of the cast gets the lock.

    If other buyers hold the lock at that time, the line says how many holders there are.
    """
    commits = find_last_commits(judgement)
    for hold in judgement.holds:
        if hold.attempt not in cast:
            continue
        other_holds = [other for other in judgement.holds if other.start < hold.start < other.end]
        text = get_buyer_name(hold.attempt)
        if hold.node:
            text += f" (node {hold.node})"
        text += " has the lock"
        if hold.fence is not None:
            text += f", fence {hold.fence}"
        if other_holds:
            text += f": {_describe_holders(other_holds, hold.start, commits)}"
        is_first = hold is judgement.holds[0]  # the story begins with it
        weight = Weight.TURNING_POINT if other_holds or is_first else Weight.STEP
        yield Line(hold.start, weight, text)


def _describe_holders(
    other_holds: Sequence[LockHold], time_ns: int, commits: Mapping[str, Commit]
) -> str:
    """Return how many buyers hold the lock when a buyer gets it at `time_ns`, in words.

    If all other holders have sold by then, the text says that they have not released the lock yet.

    other_holds  the holds of the other buyers at this time
    """
    number = NUMBER_WORDS.get(1 + len(other_holds), str(1 + len(other_holds)))
    if not all(_has_sold(other, time_ns, commits) for other in other_holds):
        return f"{number} holders"
    names = " and ".join(get_buyer_name(other.attempt) for other in other_holds)
    verb = "has" if len(other_holds) == 1 else "have"
    return f"{number} inside, {names} {verb} not released yet"


def _has_sold(hold: LockHold, time_ns: int, commits: Mapping[str, Commit]) -> bool:
    """Return whether the holder's order was committed by this time."""
    commit = commits.get(hold.attempt)
    return commit is not None and commit.done_at is not None and commit.done_at < time_ns


def _make_step_lines(judgement: Judgement, cast: Sequence[str]) -> Iterator[Line]:
    """Yield the lines of the faults, and of the cast's reads, releases and stops.

    A buyer stops at a point of its purchase where a fault told it to wait. These events get no
    line: the preparation of a fault, a read of the same stock as before, a release that worked, and
    a stop at one of POINTS_WITH_OTHER_LINES.

    cast  the buyers whom the story follows
    """
    last_amounts: dict[str, int | None] = {}
    for event in judgement.events:
        attempt = event.get("attempt", "")
        if event["by"] == "fault":
            yield from _make_fault_lines(event)
        elif attempt not in cast:
            continue
        elif event["f"] == "after_read":
            amount = event.get("amount")
            if attempt not in last_amounts or last_amounts[attempt] != amount:
                text = f"{get_buyer_name(attempt)} reads a stock of {amount}"
                yield Line(event["t"], Weight.STEP, text)
            last_amounts[attempt] = amount
        elif event["f"] == "released":
            yield from _make_release_lines(judgement, event)
        elif event["f"].startswith("stops at ") and not event["f"].endswith(
            POINTS_WITH_OTHER_LINES
        ):
            yield Line(event["t"], Weight.TURNING_POINT, f"{get_buyer_name(attempt)} {event['f']}")


def _make_fault_lines(event: Event) -> Iterator[Line]:
    """Yield the line for an event of a fault, except for its preparation (`arm`)."""
    text = event.get("what", event["f"])
    phase = event.get("phase")
    if phase == "prove" and event["type"] == "fail":
        yield Line(event["t"], Weight.FAULT, f"fault: it did not fire: {text}")
    elif phase == "prove":
        yield Line(event["t"], Weight.EVIDENCE, f"seen: {text}")
    elif phase != "arm":
        yield Line(event["t"], Weight.FAULT, f"fault: {text}")


def _make_release_lines(judgement: Judgement, event: Event) -> Iterator[Line]:
    """Yield a line of the story if a release failed or deleted the lock of another buyer."""
    time = event["t"]
    attempt = event["attempt"]
    outcome = str(event.get("outcome"))
    other_holds = [
        hold for hold in judgement.holds if hold.start < time < hold.end and hold.attempt != attempt
    ]
    if outcome in RELEASE_WORDS:
        text = f"{get_buyer_name(attempt)} releases, and {RELEASE_WORDS[outcome]}"
        yield Line(time, Weight.ANSWER, text)
    elif outcome == "released" and other_holds:
        victim = get_buyer_name(other_holds[-1].attempt)
        text = f"{get_buyer_name(attempt)} releases, and so deletes the lock of {victim}"
        yield Line(time, Weight.TURNING_POINT, text)


def _make_order_lines(judgement: Judgement, cast: Sequence[str]) -> list[Line]:
    """Return a line for each order of the cast, at the time of its commit.

    An order has no line if its number or its commit is unknown.

    cast  the buyers whom the story follows
    """
    order_numbers = dict(judgement.recovered_orders)
    for request in judgement.requests:
        if request.order is not None:
            order_numbers[request.attempt] = request.order
    commits = find_last_commits(judgement)
    # A finding of `stale_write` on lost updates has `prevents_exact` False, because the finding
    # `lost_update` already prevents an exact verdict. Its first attempt erased the decrements of
    # its other attempts.
    erased_by_writer = {
        finding.attempts[0]: finding.attempts[1:]
        for finding in judgement.findings
        if finding.rule == "stale_write" and not finding.prevents_exact
    }
    lines = []
    for attempt in cast:
        commit = commits.get(attempt)
        if attempt not in order_numbers or commit is None:
            continue
        text = f"{get_buyer_name(attempt)} sells order {order_numbers[attempt]}"
        if commit.stock_seen is not None:
            text += f", writes back {commit.stock_seen - 1}"
        if attempt in erased_by_writer:
            orders = [
                str(order_numbers[erased_attempt])
                for erased_attempt in erased_by_writer[attempt]
                if erased_attempt in order_numbers
            ]
            text += f": the decrement of order {', '.join(orders)} is lost"
        if attempt in judgement.recovered_orders:
            text += " (its buyer does not know)"
        lines.append(Line(commit.done_at or commit.begun_at, Weight.TURNING_POINT, text))
    return lines


def _make_answer_lines(judgement: Judgement, cast: Sequence[str]) -> Iterator[Line]:
    """Yield a line for each outcome that a buyer of the cast was answered, except `sold`.

    If the buyer got the same outcome several times, the line has the time of the first answer.
    """
    refusals = [
        request
        for request in judgement.requests
        if request.attempt in cast and request.outcome != "sold" and request.answered_at
    ]
    explaining_attempts: set[str] = set()
    for finding in judgement.findings:
        explaining_attempts.update(finding.attempts)
    refusals_by_outcome = group_by(refusals, attrgetter("attempt", "outcome"))
    for (attempt, outcome), requests in refusals_by_outcome.items():
        text = f"{get_buyer_name(attempt)} is answered {outcome}"
        if len(requests) > 1:
            text += f", {len(requests)} times"
        explains_finding = attempt in explaining_attempts and outcome == "sold_out"
        weight = Weight.TURNING_POINT if explains_finding else Weight.ANSWER
        yield Line(requests[0].last_seen_at, weight, text)


def _summarize_rest(judgement: Judgement, start: int, unlisted_orders: int) -> str:
    """Return the text of the story's last line, which sums up what the other lines do not tell.

    start            the time of the first line, in nanoseconds
    unlisted_orders  the number of orders without a line
    """
    parts = []
    if unlisted_orders > 0:
        parts.append(f"and {unlisted_orders} more sold")
    sold_out_times = [
        request.answered_at
        for request in judgement.requests
        if request.outcome == "sold_out" and request.answered_at
    ]
    if sold_out_times:
        parts.append(f"last sold out at {(max(sold_out_times) - start) / 1e9:.1f} s")
    if judgement.verdict == "deadlock":
        refused_buyers = sum(judgement.outcomes[outcome] for outcome in RETRIED_REFUSALS)
        end = max(request.last_seen_at for request in judgement.requests)
        parts.append(f"{refused_buyers} still refused at {(end - start) / 1e9:.1f} s")
        parts.append(f"{format_count(judgement.stock_left, 'unit')} left")
    orders = format_count(len(judgement.orders), "order")
    total = f"{orders} for {format_count(judgement.initial_stock, 'unit')}"
    if not parts:
        return total
    return f"{', '.join(parts)}: {total}"
