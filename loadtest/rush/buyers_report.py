"""The report of a rush's buyers: their requests and answers."""

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
    rush_id   the id of the rush. The Idempotency-Key of a buyer is `<rush_id>/<name of the buyer>`
    arrived   how many buyers waited at the barrier, just before their first request
    requests  the requests of all buyers, with their answers
    stopped   whether the rush was stopped before every buyer had an answer
    lost      a sentence for each process of buyers that ended before it had sent its report
    """

    lock: str
    product: str
    sale: int
    rush_id: str
    arrived: int
    requests: Sequence[Request]
    stopped: bool = False
    lost: Sequence[str] = ()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the report from the fields that as_json() returned."""
        requests = [Request(*request_fields) for request_fields in fields["requests"]]
        return cls(**{**fields, "requests": requests})

    def as_json(self) -> dict[str, Any]:
        """Return the fields as json.dumps() can encode them.

        dataclasses.asdict() would be slower, because it copies each request.
        """
        requests = [fields_of_request(request) for request in self.requests]
        return {**vars(self), "requests": requests}

    def events(self) -> list[Event]:
        """Return the events of every request and every answer, oldest first."""
        return make_buyer_events(self.requests, self.lock, self.product, self.sale)

    def append_to(self, path: Path | str) -> None:
        """Append the events to a history file (docs/history.md). Raises OSError."""
        with History(path) as history:
            for event in self.events():
                history.record(**event)
