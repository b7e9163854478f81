"""How a sale broke: a timeline of the buyers and faults that matter, in lines of text.

0.000 s  victim (A) has the lock, fence 7
0.004 s  victim reads a stock of 10
0.010 s  fault: node A stopped with SIGSTOP (pids 12, 13)
1.020 s  rival-1 (B) has the lock, fence 8: two holders
1.021 s  rival-1 reads a stock of 10
2.551 s  victim sells order 31, writes back 9
2.560 s  rival-1 sells order 32, writes back 9: the decrement of order 31 is lost
...      and 9 more sold, last sold out at 3.9 s: 11 orders for 10 units
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loadtest.judge.intervals import Commit, ProductHistory, grouped
from loadtest.judge.verdict import ASK_AGAIN, Judgement

#: Lines of a timeline, with the last one, which sums up.
LENGTH = 14
#: Buyers whose every step is shown.
CAST = 3
#: Violations whose attempts explain a broken sale, the best explanation first.
EXPLAINING = ("stale_write", "overlap", "fence_fell", "double_order", "false_sold_out")
#: What a release finds, in words.
RELEASED = {"expired": "finds that the lock was not its own", "unknown": "gets no answer"}
#: How many hold the lock, in words.
COUNT = {2: "two", 3: "three", 4: "four", 5: "five"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line. Where there are too many, those of the lowest `weight` are left out."""

    t: int
    weight: int
    text: str


def timeline(sale: Judgement) -> list[str]:
    """At most LENGTH lines: seconds since the first of them, and what happened. The findings say
    whose steps matter."""
    cast = _cast(sale)
    sales = _sales(sale, cast)
    lines = [*_holders(sale, cast), *_steps(sale, cast), *sales, *_answers(sale, cast)]
    kept = sorted(lines, key=lambda line: (-line.weight, line.t))[: LENGTH - 1]
    kept.sort(key=lambda line: line.t)
    start = kept[0].t if kept else 0
    shown = [f"{(line.t - start) / 1e9:6.3f} s  {line.text}" for line in kept]
    others = len(sale.orders) - sum(line in kept for line in sales)
    return [*shown, f" ...      {_rest(sale, start, others)}"]


def name(attempt: str) -> str:
    """A buyer's name: the last part of its attempt's id."""
    return attempt.rpartition("/")[2]


def last_commits(history: ProductHistory) -> dict[str, Commit]:
    """The last commit of each attempt, for those before it failed. A buyer who bought has one that
    happened: where none was recorded, the answer takes its place."""
    last = {commit.attempt: replace(commit) for commit in history.commits}
    for request in history.requests:
        if request.type == "ok":
            answered = request.answered or request.sent
            commit = last.setdefault(request.attempt, Commit(request.attempt, answered))
            commit.done = commit.done or commit.begun
            commit.order = request.order or commit.order
    return last


def _cast(sale: Judgement) -> list[str]:
    """The attempts to follow: those of the findings and the victims, and if these are fewer than
    two, the first of the others."""
    rank = {rule: place for place, rule in enumerate(EXPLAINING)}
    found = sorted(sale.findings, key=lambda finding: rank.get(finding.rule, len(rank)))
    everybody = [event["attempt"] for event in sale.events if "attempt" in event]
    victims = [attempt for attempt in everybody if name(attempt).startswith("victim")]
    rivals = [attempt for attempt in everybody if name(attempt).startswith("rival")]
    inside = [hold.attempt for hold in sale.holds]
    cast = dict.fromkeys(attempt for finding in found for attempt in finding.attempts[:2])
    cast.update(dict.fromkeys(victims))
    if len(cast) < 2:
        cast.update(dict.fromkeys([*sorted(rivals, key=name), *inside, *everybody]))
    return list(cast)[:CAST]


def _holders(sale: Judgement, cast: Sequence[str]) -> Iterator[Line]:
    """Who got the lock, and how many had it then."""
    for hold in sale.holds:
        if hold.attempt not in cast:
            continue
        inside = 1 + sum(other.start < hold.start < other.end for other in sale.holds)
        where = f" ({hold.node})" if hold.node else ""
        fence = f", fence {hold.fence}" if hold.fence is not None else ""
        together = f": {COUNT.get(inside, inside)} holders" if inside > 1 else ""
        text = f"{name(hold.attempt)}{where} has the lock{fence}{together}"
        yield Line(hold.start, 3 if together or hold is sale.holds[0] else 2, text)


def _steps(sale: Judgement, cast: Sequence[str]) -> Iterator[Line]:
    """What was done to the servers, and by what it was seen; where each of the cast stopped, what
    it read, of equal reads in a row only the first, and what its release came to. Preparations of
    faults are left out."""
    last: dict[str, int | None] = {}
    for event in sale.events:
        t, f, attempt = event["t"], event["f"], event.get("attempt", "")
        if event["by"] == "fault":
            what, phase = event.get("what", f), event.get("phase")
            if phase == "prove" and event["type"] != "fail":
                yield Line(t, 0, f"seen: {what}")
            elif phase != "arm":
                yield Line(t, 4, f"fault: {'it did not fire: ' * (phase == 'prove')}{what}")
        elif attempt not in cast:
            continue
        elif f == "after_read":
            amount = event.get("amount")
            if attempt not in last or last[attempt] != amount:
                yield Line(t, 2, f"{name(attempt)} reads a stock of {amount}")
            last[attempt] = amount
        elif f == "released":
            others = [o for o in sale.holds if o.start < t < o.end and o.attempt != attempt]
            outcome = str(event.get("outcome"))
            if outcome in RELEASED:
                yield Line(t, 1, f"{name(attempt)} releases, and {RELEASED[outcome]}")
            elif outcome == "released" and others:
                whose = name(others[-1].attempt)
                yield Line(t, 3, f"{name(attempt)} releases, and so deletes the lock of {whose}")
        elif f.startswith("stops at ") and not f.endswith(("after_read", "after_commit")):
            yield Line(t, 3, f"{name(attempt)} {f}")  # those two: here as reads, and in _sales


def _sales(sale: Judgement, cast: Sequence[str]) -> list[Line]:
    """What each of them sold, at its commit."""
    numbers = dict(sale.recovered)
    numbers.update({r.attempt: r.order for r in sale.requests if r.order is not None})
    committed = last_commits(sale)
    stale = [finding.attempts for finding in sale.findings if finding.rule == "stale_write"]
    erased = {by: lost for by, *lost in stale}  # by the attempt of a stale write
    lines = []
    for attempt in cast:
        commit = committed.get(attempt)
        if attempt not in numbers or commit is None:
            continue
        text = f"{name(attempt)} sells order {numbers[attempt]}"
        if commit.amount is not None:
            text += f", writes back {commit.amount - 1}"
        if attempt in erased:
            lost = [str(numbers[key]) for key in erased[attempt] if key in numbers]
            text += f": the decrement of order {', '.join(lost)} is lost"
        if attempt in sale.recovered:
            text += " (its buyer does not know)"
        lines.append(Line(commit.done or commit.begun, 3, text))
    return lines


def _answers(sale: Judgement, cast: Sequence[str]) -> Iterator[Line]:
    """Every other answer they got: when first, and how often."""
    others = (r for r in sale.requests if r.attempt in cast and r.outcome != "sold" and r.answered)
    explaining = {key for finding in sale.findings for key in finding.attempts}
    for (attempt, outcome), times in grouped(others, lambda r: (r.attempt, r.outcome)).items():
        often = f", {len(times)} times" if len(times) > 1 else ""
        weight = 3 if attempt in explaining and outcome == "sold_out" else 1
        text = f"{name(attempt)} is answered {outcome}{often}"
        yield Line(times[0].answered or times[0].sent, weight, text)


def _rest(sale: Judgement, start: int, others: int) -> str:
    """The last line: what became of the rest of the sale."""
    asked = sale.requests
    parts = [f"and {others} more sold"] if others > 0 else []
    refused = [r.answered for r in asked if r.outcome == "sold_out" and r.answered]
    if refused:
        parts.append(f"last sold out at {(max(refused) - start) / 1e9:.1f} s")
    if sale.verdict == "deadlock":
        waiting = sum(sale.outcomes[outcome] for outcome in ASK_AGAIN - {"unknown"})
        until = max(request.answered or request.sent for request in asked)
        asked_for = f"{waiting} still refused at {(until - start) / 1e9:.1f} s"
        parts.append(f"{asked_for}, {sale.stock_left} units left")
    units = f"{len(sale.orders)} orders for {sale.initial_stock} units"
    return f"{', '.join(parts)}: {units}" if parts else units
