"""The report of a rush's buyers: their requests, which only their processes know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from loadtest.judge.buyer_events import make_buyer_events
from loadtest.judge.history import Event, History
from loadtest.judge.intervals import Request, fields_of_request


@dataclass(frozen=True, kw_only=True)
class BuyersReport:
    """The sale and the requests of a finished rush.

    lock      the strategy, or the name of the target
    sale      the number of the sale; 0 in a third-party shop
    attempts  the id of the rush, with which the buyers' Idempotency-Keys begin
    arrived   how many buyers were at the barrier
    requests  the requests of all buyers, with their answers
    stopped   whether the rush was stopped before every buyer had an answer
    lost      a sentence for each process that ended between the release and its report
    """

    lock: str
    product: str
    sale: int
    attempts: str
    arrived: int
    requests: Sequence[Request]
    stopped: bool = False
    lost: Sequence[str] = ()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the report that as_json() has serialized."""
        requests = [Request(*request_fields) for request_fields in fields["requests"]]
        return cls(**{**fields, "requests": requests})

    def as_json(self) -> dict[str, Any]:
        """Return the fields for json.dumps(), faster than asdict(), which copies each request."""
        requests = [fields_of_request(request) for request in self.requests]
        return {**vars(self), "requests": requests}

    def events(self) -> list[Event]:
        """Return the events of every request and every answer, oldest first."""
        return make_buyer_events(self.requests, self.lock, self.product, self.sale)

    def append_to(self, path: Path | str) -> None:
        """Append the events to the history in a file. Raises OSError."""
        with History(path) as history:
            for event in self.events():
                history.record(**event)
