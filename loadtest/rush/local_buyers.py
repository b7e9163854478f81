"""The buyers of one process in a rush: they wait at a barrier, buy, and report once."""

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import gevent
from gevent.event import Event

from loadtest.judge.intervals import Request
from loadtest.judge.outcomes import RETRIED_OUTCOMES
from loadtest.rush import messages
from loadtest.rush.http_client_private import call_before_sending
from loadtest.rush.plan import RushPlan
from loadtest.rush.target_steps import TargetSteps
from loadtest.stack.client import ShopUnreachable
from loadtest.target.answer import Answer
from loadtest.target.ours import OurShop
from loadtest.target.target import Buyer, Target

#: Time for which gevent runs ready greenlets before it reads answers: Python's switch interval.
USUAL_SWITCH_SECONDS = sys.getswitchinterval()
#: The switch interval from the release until the report: long enough for every buyer to send its
#: request before an answer is read.
RELEASE_SWITCH_SECONDS = 1.0


def wait_forever() -> NoReturn:
    """Wait until Locust stops this user, because Locust replaces a user that ends."""
    while True:
        Event().wait()


@dataclass
class LocalBuyers:
    """The buyers of this process in one rush.

    The barrier is the instant just before a buyer's first request is sent. All buyers are released
    once the last of them has arrived there, so that they buy within some tens of milliseconds.
    Locust's `spawning_complete` is too early: some buyers are still connecting then.

    id             the id of the rush
    numbers        the numbers of the buyers of this process
    send_message   sends a message to the coordinator, the process that opened the sale
    seconds_ahead  the seconds by which this machine's clock is ahead of the coordinator's
    requests       the requests of each buyer, by its key
    arrived        the number of buyers at the barrier
    finished       the number of buyers with their last answer
    released_at    the time of the release on this machine's monotonic clock; 0 before
    """

    id: str
    plan: RushPlan
    numbers: range
    target: Target
    send_message: Callable[..., object]
    seconds_ahead: float = 0.0
    requests: dict[str, list[Request]] = field(default_factory=dict)
    arrived: int = 0
    finished: int = 0
    released_at: float = 0.0
    _rush_is_over: bool = False
    _has_reported: bool = False

    def __post_init__(self) -> None:
        self._free_numbers = iter(self.numbers)
        self._barrier = Event()
        #: The keys of the buyers whose buy() was called and has sent no request yet.
        self._unsent_keys: set[str] = set()

    def add_buyer(self, user: Any) -> Buyer:
        """Return the next buyer for a Locust user, and choose its node of the shop.

        A surplus user waits forever. Pressing `w` in Locust's terminal adds one.
        """
        number = next(self._free_numbers, None)
        if number is None:
            wait_forever()
        user.client.base_url = self.plan.hosts[number % len(self.plan.hosts)]
        buyer = Buyer(number, f"{self.id}/buyer-{number}", user.client)
        call_before_sending(user.client, lambda: self.record_sending(buyer.key))
        return buyer

    def get_steps(self, user: Any) -> Any:
        """Return the object whose connect() and buy() a buyer calls.

        For this project's shop it is Locust's user itself, for a third-party shop a TargetSteps.
        """
        if isinstance(self.target, OurShop):
            return user
        return TargetSteps(self.target, self.plan.hosts, user.client, self.report_failure)

    def record_sending(self, key: str) -> None:
        """Record that a purchase is sent now. Before its first purchase the buyer waits here.

        Only the first request of each buy() is recorded. For other requests of buy(), and for those
        of prepare() and connect(), this does nothing.
        """
        if key not in self._unsent_keys:
            return
        self._unsent_keys.remove(key)
        if key not in self.requests:
            self._wait_at_barrier()
        self.requests.setdefault(key, []).append(Request(key, time.monotonic_ns()))

    def _wait_at_barrier(self) -> None:
        """Wait until the coordinator releases the buyers.

        A buyer that comes after the release, or still waits when the rush ends, waits forever.
        """
        if self._barrier.is_set():
            wait_forever()
        self.arrived += 1
        if self.arrived == len(self.numbers):
            self.send_message(messages.ARRIVED)
        self._barrier.wait()
        if self._rush_is_over:
            wait_forever()

    def release(self, at: float) -> None:
        """Release all waiting buyers at `at`, a time on the coordinator's monotonic clock."""
        released_at = at + self.seconds_ahead
        gc.freeze()  # so that no collection scans thousands of buyers while they send
        sys.setswitchinterval(RELEASE_SWITCH_SECONDS)
        gevent.sleep(max(0.0, released_at - time.monotonic()))
        self.released_at = released_at
        self._barrier.set()

    def send_purchase(self, buyer: Buyer, buy: Callable[[Buyer], Answer]) -> Answer:
        """Let a buyer send its purchase, and record its times and its answer.

        The buyer's first request is built before it waits at the barrier, so that only its bytes
        have to be sent after the release.
        """
        self._unsent_keys.add(buyer.key)
        answer = buy(buyer)
        # If buy() sent a request, it was recorded then, and this call does nothing.
        self.record_sending(buyer.key)
        answer.record(self.requests[buyer.key][-1])
        return answer

    def read_and_count(self, response: Any) -> Answer:
        """Return the meaning of an answer of this project's shop, and let Locust count it."""
        answer = self.target.read(response)
        answer.count(response)
        return answer

    def wait_before_retry(self, answer: Answer) -> bool:
        """Wait before a retry. Return whether the buyer should send the request again.

        Return False at once if the outcome is not in RETRIED_OUTCOMES, if the rush is over, if the
        deadline has passed, or if a retry might buy a second unit.
        """
        if answer.outcome not in RETRIED_OUTCOMES:
            return False
        # A third-party shop may sell twice to a buyer who repeats a request, but not after `busy`.
        may_repeat = self.target.repeatable or answer.outcome == "busy"
        deadline = self.released_at + self.plan.deadline
        must_stop = self._rush_is_over or time.monotonic() > deadline
        if must_stop or not may_repeat:
            return False
        gevent.sleep(answer.choose_retry_delay())
        return True

    def finish(self) -> NoReturn:
        """Count a buyer as finished, and wait forever. The last one to finish sends the report."""
        self.finished += 1
        if self.finished == self.arrived:
            self.send_report()
        wait_forever()

    def report_failure(self, error: ShopUnreachable) -> NoReturn:
        """Send an error to the coordinator, so that the rush ends without a verdict. Wait forever.

        error  an error in the target's file, or of a shop that does not answer
        """
        self.send_message(messages.FAILED, error=messages.make_sendable(str(error)))
        wait_forever()

    def handle_message(self, message: Any) -> None:
        """Handle a message of the coordinator."""
        if message.type == messages.RELEASE:
            gevent.spawn(self.release, message.data["at"])
        elif message.type == messages.END:
            self.end_rush()

    def end_rush(self) -> None:
        """End the rush: the buyers send no more requests, and those already sent are reported."""
        self._rush_is_over = True
        self._barrier.set()
        self.send_report()

    def send_report(self) -> None:
        """Send the report, once: all requests and answers, in the coordinator's time."""
        if self._has_reported:
            return
        self._has_reported = True
        # Undo the two settings of release().
        gc.unfreeze()
        sys.setswitchinterval(USUAL_SWITCH_SECONDS)
        packed_requests: list[list[Any]] = []
        for requests in self.requests.values():
            packed_requests += [
                messages.pack_request(request, self.seconds_ahead) for request in requests
            ]
        self.send_message(messages.REPORT, arrived=self.arrived, requests=packed_requests)
