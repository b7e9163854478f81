"""The messages between Locust's master and its workers in a rush; msgpack can encode them.

Without workers, Locust's local runner passes the same messages to the listeners in its process. The
announcement of a rush is not a message: it is one of the options that Locust sends to each worker.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgpack

from loadtest.judge.intervals import Request, fields_of_request
from loadtest.target.target import Target, TargetError, get_target_file

logger = logging.getLogger("loadtest")

#: To the workers: release the buyers at a given time.
RELEASE = "rush_go"
#: To the workers: the rush is over; a worker that has not sent its report sends it now.
END = "rush_end"
#: To the master: a process has prepared its buyers.
PREPARED = "rush_prepared"
#: To the master: all buyers of a process are at the barrier.
ARRIVED = "rush_arrived"
#: To the master: all requests of a process's buyers.
REPORT = "rush_report"
#: To the master: a process cannot go on, for instance because of an error in the target's file.
FAILED = "rush_failed"
KINDS = (RELEASE, END, PREPARED, ARRIVED, REPORT, FAILED)

#: Two processes on one machine have the same monotonic clock. Even then a small difference is
#: measured, because reading two clocks takes some microseconds. So a difference of at most this
#: counts as 0.
SAME_CLOCK_SECONDS = 0.001
#: How many times measure_clock_offset() reads both clocks.
CLOCK_SAMPLES = 5


def measure_clock_offset() -> float:
    """Return the time of day minus the monotonic clock, in seconds.

    The offset is the same for all processes of a machine, so a different offset shows a different
    machine. The pair of clocks is read several times, and the pair that was read fastest is used:
    in a slower one, the process may have been descheduled after it read the first clock.
    """
    fastest_seconds = float("inf")
    offset = 0.0
    for _ in range(CLOCK_SAMPLES):
        started_at = time.monotonic()
        time_of_day = time.time()
        reading_seconds = time.monotonic() - started_at
        if reading_seconds < fastest_seconds:
            fastest_seconds = reading_seconds
            offset = time_of_day - started_at
    return offset


def measure_seconds_ahead(remote_offset: float) -> float:
    """Return the seconds by which this machine's monotonic clock is ahead of another machine's.

    An offset is the time of day minus the monotonic clock. So if both machines have the same time
    of day, the difference of their offsets is the difference of their monotonic clocks. A
    difference of at most SAME_CLOCK_SECONDS counts as 0.

    remote_offset  what measure_clock_offset() returned on the other machine
    """
    difference = remote_offset - measure_clock_offset()
    return difference if abs(difference) > SAME_CLOCK_SECONDS else 0.0


def pack_request(request: Request, seconds_ahead: float = 0.0) -> list[Any]:
    """Return the fields of a request, with its times on the coordinator's clock.

    `Request(*fields)` restores the request.

    seconds_ahead  the seconds by which this machine's clock is ahead of the coordinator's
    """
    ahead_ns = round(seconds_ahead * 1e9)
    answered_at = request.answered_at
    if answered_at is not None:
        answered_at -= ahead_ns
    request_on_coordinators_clock = replace(
        request, sent_at=request.sent_at - ahead_ns, answered_at=answered_at
    )
    return [make_sendable(field) for field in fields_of_request(request_on_coordinators_clock)]


def make_sendable(field: Any) -> Any:
    """Return a field as msgpack can encode it.

    An integer of more than 64 bits becomes text, which parse_canonical_number() converts back. A
    character that UTF-8 cannot encode (a lone surrogate) becomes a question mark.
    """
    if isinstance(field, int) and not -(2**63) <= field < 2**64:
        return str(field)
    if isinstance(field, str):
        return field.encode(errors="replace").decode()
    return field


def pick_sendable_state(target: Target, attributes_before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a target that can be sent to the workers.

    Buyers in other processes need the attributes that the target's open() has set. Raises
    TargetError if one of these cannot be sent. Other attributes that cannot be sent are left out,
    because the worker's own target sets them in __init__(). The returned attributes are as a worker
    receives them: a tuple has become a list.

    attributes_before  the target's attributes before open() was called
    """
    state = {}
    for name, attribute in vars(target).items():
        try:
            state[name] = msgpack.loads(msgpack.dumps(attribute))
        except (TypeError, ValueError, OverflowError) as error:
            if name not in attributes_before or attributes_before[name] is not attribute:
                raise TargetError(
                    f"{get_target_file(target)}: open() sets self.{name} to {attribute!r:.60}, "
                    "which cannot be sent to Locust's workers: set it in __init__(), or use only "
                    "numbers, strings and lists"
                ) from error
    return state
