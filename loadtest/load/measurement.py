"""The requests and the times that Locust's processes recorded in a load run."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from loadtest.judge.intervals import Request, group_by


@dataclass(frozen=True)
class Measurement:
    """Locust's records of a load run.

    requests        all requests, by product, including those before `begin` and after `end`. The
                    first request of a purchase has the time at which it was due as `sent_at`
    begin, end      the measured time, in seconds of the monotonic clock
    cpu             processor seconds from `begin` to `end` of the nodes, PostgreSQL, Valkey and
                    Locust, by these names; None if they cannot be read
    locust_is_busy  whether Locust used the processor for more than 90 % of the time
    turned_away     in the open model, the number of arrivals without a request, because MAX_CLIENTS
                    buyers were already waiting for an answer
    processes       the number of Locust's processes that have written their requests
    """

    requests: Mapping[str, Sequence[Request]]
    begin: float
    end: float
    cpu: Mapping[str, float | None] = field(default_factory=dict)
    locust_is_busy: bool = False
    turned_away: int = 0
    processes: int = 1

    @cached_property
    def purchases(self) -> list[list[Request]]:
        """The requests of each purchase, in the order in which they were sent."""
        purchases: list[list[Request]] = []
        for requests in self.requests.values():
            purchases += group_by(requests, attrgetter("attempt")).values()
        return purchases


def read_measurement(folder: Path) -> Measurement:
    """Return the measurement of a run from the files that Locust's processes wrote."""
    records = [json.loads(path.read_text()) for path in folder.glob("buyers-*.json")]
    requests: dict[str, list[Request]] = defaultdict(list)
    for record in records:
        for product, packed_requests in record["requests"].items():
            requests[product] += [Request(*fields) for fields in packed_requests]
    return Measurement(
        requests,
        turned_away=sum(record["turned_away"] for record in records),
        processes=len(records),
        # begin, end, cpu and locust_is_busy
        **json.loads((folder / "window.json").read_text()),
    )
