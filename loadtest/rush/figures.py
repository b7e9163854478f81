"""What a rush, or a load, comes to: figures of its requests, its history, its result in words."""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.intervals import SAID, Request, grouped


def figures(requests: Sequence[Request]) -> dict[str, Any]:
    """Those that a run has in summary.json, where judge/run.py says what they are. `buy_ms` is of
    each buyer's whole purchase, `requests` of each single request, with those that asked again."""
    answers = [
        (asked[0].sent / 1e9, [one.answered / 1e9 for one in asked if one.answered is not None])
        for asked in grouped(requests, lambda one: one.attempt).values()
    ]
    first = [sent for sent, _ in answers]
    known = [(sent, answered) for sent, answered in answers if answered]
    began = min((sent for sent, _ in known), default=0.0)
    ended = max((answered[-1] for _, answered in known), default=0.0)
    took = [(one.answered - one.sent) / 1e6 for one in requests if one.answered is not None]
    return {
        "duration_s": round(ended - began, 3),
        "buy_ms": percentiles(((done[-1] - sent) * 1000 for sent, done in known), 50, 95, 99),
        "arrival_spread_ms": round((max(first) - min(first)) * 1000, 1) if first else 0.0,
        "began_s": began,
        "requests": percentiles(took, 50, 99),
        "in_flight": in_flight([(sent, answered[0]) for sent, answered in known]),
    }


def in_flight(intervals: Iterable[tuple[float, float]]) -> int:
    """The most requests that were sent and not yet answered at one instant."""
    steps = sorted(step for sent, answered in intervals for step in ((sent, 1), (answered, -1)))
    return max(accumulate(step for _, step in steps), default=0)


def percentiles(values: Iterable[float], *percents: int) -> dict[str, float]:
    """The percentiles p50, p99 and so on, and the largest: `max`. Each is the smallest value that
    at least so many percent of them do not exceed (nearest rank); without values 0."""
    ordered = sorted(values) or [0.0]
    ranks = {f"p{percent}": ceil(len(ordered) * percent / 100) for percent in percents}
    ranks["max"] = len(ordered)
    return {name: round(ordered[rank - 1], 1) for name, rank in ranks.items()}


def recorded(requests: Sequence[Request], lock: str, product: str, sale: int) -> list[Event]:
    """Requests and answers as a history has them, oldest first."""
    of_all = {"by": "buyer", "f": "buy", "lock": lock, "product": product, "sale": sale}
    found: list[Any] = []
    for request in requests:
        who = {**of_all, "attempt": request.attempt}
        found.append({**who, "type": "invoke", "t": request.sent})
        if request.answered is not None:
            answer = {"type": request.type, "t": request.answered, "outcome": request.outcome}
            more = {name: getattr(request, name) for name in SAID}
            answer |= {name: value for name, value in more.items() if value not in (None, "")}
            found.append({**who, **answer})
    return sorted(found, key=lambda event: int(event["t"]))


def judge_cut_short(run: MutableMapping[str, Any]) -> None:
    """Make the verdict on a rush that was stopped, or lost buyers, `unknown`, unless it had
    oversold by then: that stays true."""
    stopped = ["the rush was stopped"] if run.get("stopped") else []
    if reasons := "; ".join([*stopped, *run.get("lost", ())]):
        run["verdict"] = "oversold" if run["oversold"] else "unknown"
        run["why"] = f"{reasons}: {run.get('why') or 'not everybody had an answer'}"


def sentence(result: Mapping[str, Any]) -> str:
    """The result of a rush, in a line or a few."""
    said = f"{result['verdict'].upper()} [{result.get('lock', '-')}]"
    if "orders" in result:
        said += (
            f": {result['orders']} orders for {result['initial_stock']} units, "
            f"{result['stock_left']} left on the shelf"
        )
    more = [f"not judged: {what}" for what in result.get("not_judged", ())]
    reasons = [result.get("why"), *result.get("findings", ()), result.get("error")]
    return "\n".join([said, *more, *dict.fromkeys(str(one) for one in reasons if one)])
