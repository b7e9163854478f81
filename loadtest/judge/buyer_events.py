"""The events of a history that record what buyers asked and what they were answered."""

from collections.abc import Sequence
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.intervals import SAID, Request


def buyer_events(requests: Sequence[Request], lock: str, product: str, sale: int) -> list[Event]:
    """Return the events of these requests and of their answers, oldest first."""
    events: list[Any] = []
    for request in requests:
        common = {
            "by": "buyer",
            "f": "buy",
            "lock": lock,
            "product": product,
            "sale": sale,
            "attempt": request.attempt,
        }
        events.append({**common, "type": "invoke", "t": request.sent})
        if request.answered is not None:
            facts = {name: getattr(request, name) for name in SAID}
            events.append(
                {
                    **common,
                    "type": request.type,
                    "t": request.answered,
                    "outcome": request.outcome,
                    **{name: fact for name, fact in facts.items() if fact not in (None, "")},
                }
            )
    return sorted(events, key=lambda event: int(event["t"]))
