"""The story of a sale whose verdict is not `exact`: its most important events, one per line.

The story shows the injected faults, and the steps of the few buyers who explain the verdict:

0.000 s  victim (node A) has the lock, fence 7
0.004 s  victim reads a stock of 10
0.010 s  fault: node A stopped with SIGSTOP (pids 12, 13)
1.020 s  rival-1 (node B) has the lock, fence 8: two holders
1.021 s  rival-1 reads a stock of 10
2.551 s  victim sells order 31, writes back 9
2.560 s  rival-1 sells order 32, writes back 9: the decrement of order 31 is lost
...      and 9 more sold, last answered sold_out at 3.9 s: 11 orders for 10 units
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
#: The maximum number of buyers whose steps the story shows.
MAX_FOLLOWED_BUYERS = 3
#: The rules of the judge whose findings explain best why a sale is not exact, the best one first.
EXPLAINING_RULES = ("stale_write", "overlap", "fence_fell", "double_order", "false_sold_out")
#: The outcome of a failed release of the lock -> the words after "<buyer> releases, and".
RELEASE_WORDS = {"expired": "finds that the lock was not its own", "unknown": "gets no answer"}
#: A fault can stop a buyer's request at a named point of the purchase. A stop at one of these
#: points gets no line, because the read or the order at that point has a line already.
POINTS_WITH_OTHER_LINES = ("after_read", "after_commit")
#: The number of holders -> its word.
NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}


class Weight(IntEnum):
    """The importance of a line. If a story is too long, the lowest weights are omitted first."""

    #: An observation which proves that a fault happened.
    EVIDENCE = 0
    #: An answer that explains no finding, or a release that failed.
    ANSWER = 1
    #: A read of the stock, or a lock that one buyer alone holds.
    STEP = 2
    #: An order, a stop at a point of the purchase, the first holder of the lock, an answer that
    #: explains a finding of the judge, or a sign that the lock failed.
    TURNING_POINT = 3
    #: An injected fault.
    FAULT = 4


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the story, at a time in nanoseconds."""

    time_ns: int
    weight: Weight
    text: str


def tell_story(judgement: Judgement) -> list[str]:
    """Return the lines of the story, at most MAX_LINES.

    Each line has an event, and the seconds from the first line to it.
    """
    followed_attempts = _choose_followed_attempts(judgement)
    order_lines = _make_order_lines(judgement, followed_attempts)
    lines = list(_make_lock_lines(judgement, followed_attempts))
    lines += _make_step_lines(judgement, followed_attempts)
    lines += order_lines
    lines += _make_answer_lines(judgement, followed_attempts)
    lines.sort(key=attrgetter("time_ns"))
    lines.sort(key=attrgetter("weight"), reverse=True)  # stable: equal weights stay sorted by time
    shown_lines = sorted(lines[: MAX_LINES - 1], key=attrgetter("time_ns"))
    start_ns = 0
    if shown_lines:
        start_ns = shown_lines[0].time_ns
    texts = [f"{(line.time_ns - start_ns) / 1e9:6.3f} s  {line.text}" for line in shown_lines]
    unlisted_orders = len(judgement.orders) - sum(line in shown_lines for line in order_lines)
    texts.append(f" ...      {_summarize_rest(judgement, start_ns, unlisted_orders)}")
    return texts


def get_buyer_name(attempt: str) -> str:
    """Return a buyer's name: the last part of the id of the buyer's attempt to buy."""
    return attempt.rpartition("/")[2]


def find_last_commits(history: ProductHistory) -> dict[str, Commit]:
    """Return the last commit of each attempt.

    A node may have retried a COMMIT of the attempt after a failure, so only the last can be valid.
    An answer `sold` proves that there was a commit. If the commit was not recorded, the returned
    commit has the time of the answer.
    """
    # Copies, because the commits of the history must not be changed.
    commits = {commit.attempt: replace(commit) for commit in history.commits}
    for request in history.requests:
        if request.type == "ok" and request.answered_at is not None:
            commit = commits.setdefault(
                request.attempt, Commit(request.attempt, request.answered_at)
            )
            # The answer proves that the commit ended, even if its end was not recorded.
            commit.done_at = commit.done_at or commit.begun_at
            commit.order = request.order or commit.order
    return commits


def _choose_followed_attempts(judgement: Judgement) -> list[str]:
    """Return the attempts whose steps the story tells, at most MAX_FOLLOWED_BUYERS.

    They are the first two attempts of each finding, and the victims: the buyers whom a fault hits
    during their purchase. If these are fewer than two attempts, further attempts are added: first
    those of the rivals, who buy while a victim is stopped, then those of the holders of the lock,
    and then all the rest.
    """
    ranks = {rule: rank for rank, rule in enumerate(EXPLAINING_RULES)}

    def get_rank(finding: Finding) -> int:
        return ranks.get(finding.rule, len(ranks))

    findings = sorted(judgement.findings, key=get_rank)
    attempts = [event["attempt"] for event in judgement.events if "attempt" in event]
    victims = [attempt for attempt in attempts if get_buyer_name(attempt).startswith("victim")]
    rivals = [attempt for attempt in attempts if get_buyer_name(attempt).startswith("rival")]
    followed_attempts: list[str] = []
    for finding in findings:
        followed_attempts += finding.attempts[:2]
    followed_attempts += victims
    if len(set(followed_attempts)) < 2:
        followed_attempts += sorted(rivals, key=get_buyer_name)
        followed_attempts += [hold.attempt for hold in judgement.holds]
        followed_attempts += attempts
    without_repetitions = dict.fromkeys(followed_attempts)
    return list(without_repetitions)[:MAX_FOLLOWED_BUYERS]


def _make_lock_lines(judgement: Judgement, followed_attempts: Sequence[str]) -> Iterator[Line]:
    """Yield a line for each time that a followed buyer gets the lock.

    If other buyers hold the lock at that time, the line says how many holders there are.
    """
    commits = find_last_commits(judgement)
    for hold in judgement.holds:
        if hold.attempt not in followed_attempts:
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
        is_first_holder = hold is judgement.holds[0]
        weight = Weight.TURNING_POINT if other_holds or is_first_holder else Weight.STEP
        yield Line(hold.start, weight, text)


def _describe_holders(
    other_holds: Sequence[LockHold], time_ns: int, commits: Mapping[str, Commit]
) -> str:
    """Return in words how many buyers hold the lock when another buyer gets it at `time_ns`.

    If the orders of all other holders are committed by then, the text says that these holders have
    not released the lock yet.

    other_holds  the times in which the other buyers hold the lock; each includes `time_ns`
    """
    number = NUMBER_WORDS.get(1 + len(other_holds), str(1 + len(other_holds)))
    if not all(_is_order_committed(other, time_ns, commits) for other in other_holds):
        return f"{number} holders"
    names = " and ".join(get_buyer_name(other.attempt) for other in other_holds)
    verb = "has" if len(other_holds) == 1 else "have"
    return f"{number} inside, {names} {verb} not released yet"


def _is_order_committed(hold: LockHold, time_ns: int, commits: Mapping[str, Commit]) -> bool:
    """Return whether the holder's order was committed by this time."""
    commit = commits.get(hold.attempt)
    return commit is not None and commit.done_at is not None and commit.done_at < time_ns


def _make_step_lines(judgement: Judgement, followed_attempts: Sequence[str]) -> Iterator[Line]:
    """Yield the lines of the faults, and of the followed buyers' reads, releases and stops.

    A fault can stop a buyer at a point of its purchase. These events get no line: the preparation
    of a fault, a read of the same stock as before, a release that worked, and a stop at one of
    POINTS_WITH_OTHER_LINES.

    followed_attempts  the attempts whose steps the story tells
    """
    last_stock_reads: dict[str, int | None] = {}
    for event in judgement.events:
        attempt = event.get("attempt", "")
        if event["by"] == "fault":
            yield from _make_fault_lines(event)
        elif attempt not in followed_attempts:
            continue
        elif event["f"] == "after_read":
            stock = event.get("amount")
            if attempt not in last_stock_reads or last_stock_reads[attempt] != stock:
                text = f"{get_buyer_name(attempt)} reads a stock of {stock}"
                yield Line(event["t"], Weight.STEP, text)
            last_stock_reads[attempt] = stock
        elif event["f"] == "released":
            yield from _make_release_lines(judgement, event)
        elif event["f"].startswith("stops at ") and not event["f"].endswith(
            POINTS_WITH_OTHER_LINES
        ):
            yield Line(event["t"], Weight.TURNING_POINT, f"{get_buyer_name(attempt)} {event['f']}")


def _make_fault_lines(event: Event) -> Iterator[Line]:
    """Yield the line for an event of a fault.

    An event of the phase `arm`, in which the fault is prepared, has no line. An event of the phase
    `prove` says which observation proves that the fault happened, or that there is no proof.
    """
    text = event.get("what", event["f"])
    phase = event.get("phase")
    if phase == "prove" and event["type"] == "fail":
        yield Line(event["t"], Weight.FAULT, f"fault: no proof that it happened: {text}")
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


def _make_order_lines(judgement: Judgement, followed_attempts: Sequence[str]) -> list[Line]:
    """Return a line for each order of the followed buyers, at the time of its commit.

    An order has no line if its number or its commit is unknown.

    followed_attempts  the attempts whose steps the story tells
    """
    order_numbers = dict(judgement.recovered_orders)
    for request in judgement.requests:
        if request.order is not None:
            order_numbers[request.attempt] = request.order
    commits = find_last_commits(judgement)
    # A finding of the rule `stale_write` whose `prevents_exact` is False describes a lost update:
    # the first of its attempts erased the decrements of the attempts after it. The finding does not
    # have to prevent an exact verdict, because the finding `lost_update` already does.
    erased_by_writer = {
        finding.attempts[0]: finding.attempts[1:]
        for finding in judgement.findings
        if finding.rule == "stale_write" and not finding.prevents_exact
    }
    lines = []
    for attempt in followed_attempts:
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


def _make_answer_lines(judgement: Judgement, followed_attempts: Sequence[str]) -> Iterator[Line]:
    """Yield a line for each outcome, except `sold`, in the answers to a followed buyer.

    If several answers to an attempt have the same outcome, they share a line, with the time of the
    first answer.
    """
    refusals = [
        request
        for request in judgement.requests
        if request.attempt in followed_attempts
        and request.outcome != "sold"
        and request.answered_at
    ]
    attempts_in_findings: set[str] = set()
    for finding in judgement.findings:
        attempts_in_findings.update(finding.attempts)
    refusals_by_outcome = group_by(refusals, attrgetter("attempt", "outcome"))
    for (attempt, outcome), requests in refusals_by_outcome.items():
        text = f"{get_buyer_name(attempt)} is answered {outcome}"
        if len(requests) > 1:
            text += f", {len(requests)} times"
        explains_finding = attempt in attempts_in_findings and outcome == "sold_out"
        weight = Weight.TURNING_POINT if explains_finding else Weight.ANSWER
        yield Line(requests[0].last_seen_at, weight, text)


def _summarize_rest(judgement: Judgement, start_ns: int, unlisted_orders: int) -> str:
    """Return the text of the story's last line, which summarizes the events without a line.

    start_ns         the time of the first line, in nanoseconds
    unlisted_orders  the number of orders without a line
    """
    phrases = []
    if unlisted_orders > 0:
        phrases.append(f"and {unlisted_orders} more sold")
    sold_out_times = [
        request.answered_at
        for request in judgement.requests
        if request.outcome == "sold_out" and request.answered_at
    ]
    if sold_out_times:
        phrases.append(f"last answered sold_out at {(max(sold_out_times) - start_ns) / 1e9:.1f} s")
    if judgement.verdict == "deadlock":
        refused_buyers = sum(judgement.outcomes[outcome] for outcome in RETRIED_REFUSALS)
        end_ns = max(request.last_seen_at for request in judgement.requests)
        phrases.append(f"{refused_buyers} still refused at {(end_ns - start_ns) / 1e9:.1f} s")
        phrases.append(f"{format_count(judgement.stock_left, 'unit')} left")
    orders = format_count(len(judgement.orders), "order")
    total = f"{orders} for {format_count(judgement.initial_stock, 'unit')}"
    if not phrases:
        return total
    return f"{', '.join(phrases)}: {total}"
