"""The conversion of the buyers' requests and answers to events of a history."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from loadtest.judge.history import Event
from loadtest.judge.intervals import Request


def make_buyer_events(
    requests: Sequence[Request], lock: str, product: str, sale: int
) -> list[Event]:
    """Return the events of these requests and of their answers, oldest first.

    lock  the name of the strategy in the requests
    sale  the number of the sale in the requests
    """
    events: list[Any] = []
    for request in requests:
        purchase_fields = {
            "by": "buyer",
            "f": "buy",
            "lock": lock,
            "product": product,
            "sale": sale,
            "attempt": request.attempt,
        }
        events.append({**purchase_fields, "type": "invoke", "t": request.sent_at})
        if request.answered_at is not None:
            events.append(
                {
                    **purchase_fields,
                    "type": request.type,
                    "t": request.answered_at,
                    "outcome": request.outcome,
                    **request.make_answer_fields(),
                }
            )
    return sorted(events, key=itemgetter("t"))
