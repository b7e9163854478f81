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
from loadtest.rush.target_requester import TargetRequester
from loadtest.stack.client import ShopUnreachable
from loadtest.target.answer import Answer
from loadtest.target.ours import OurShop
from loadtest.target.target import Buyer, Target

#: Python's switch interval: gevent runs ready greenlets for this long before it reads sockets.
USUAL_SWITCH_SECONDS = sys.getswitchinterval()
#: The switch interval from the release until the report: long enough for every buyer to send its
#: request before an answer is read.
RELEASE_SWITCH_SECONDS = 1.0


def wait_forever() -> NoReturn:
    """Wait until Locust stops this user. A user that returned would be replaced by a new one."""
    while True:
        Event().wait()


@dataclass
class LocalBuyers:
    """The buyers of this process in one rush.

    Each buyer stops at the barrier, just before its first request is sent. When the last buyer has
    arrived there, all are released, so that they buy within some tens of milliseconds. Locust's
    event `spawning_complete` comes too early: some buyers are still connecting then.

    id             the id of the rush
    numbers        the numbers of the buyers of this process
    send_message   sends a message to the coordinator, the process that opened the sale
    seconds_ahead  the seconds by which this machine's clock is ahead of the coordinator's
    requests       the requests of each buyer, by its key
    arrived        the number of buyers who have arrived at the barrier
    finished       the number of buyers who have their last answer
    released_at    the time of the release on this machine's monotonic clock; 0 before the release
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
        self._unused_numbers = iter(self.numbers)
        self._barrier = Event()
        #: The keys of the buyers whose buy() was called and has sent no request yet.
        self._unsent_keys: set[str] = set()

    def add_buyer(self, user: Any) -> Buyer:
        """Return a new buyer for a Locust user, and choose the node of the shop for its requests.

        If there are more users than buyers, the surplus users wait forever. The key `w` in Locust's
        terminal, for example, adds a surplus user.
        """
        number = next(self._unused_numbers, None)
        if number is None:
            wait_forever()
        user.client.base_url = self.plan.hosts[number % len(self.plan.hosts)]
        buyer = Buyer(number, f"{self.id}/buyer-{number}", user.client)
        call_before_sending(user.client, lambda: self.wait_and_record_sending(buyer.key))
        return buyer

    def get_requester(self, user: Any) -> Any:
        """Return the object that sends a user's requests, with the methods connect() and buy().

        For this project's shop it is the Locust user itself. For a third-party shop it is a
        TargetRequester, which calls the target's code.
        """
        if isinstance(self.target, OurShop):
            return user
        return TargetRequester(self.target, self.plan.hosts, user.client, self.report_failure)

    def wait_and_record_sending(self, key: str) -> None:
        """Record that a buyer's purchase is sent now.

        If it is the buyer's first purchase, wait at the barrier before that.

        The HTTP client calls this function before each request. Only the first request of each
        buy() is recorded. Before other requests of buy(), and before those of prepare() and
        connect(), this function does nothing.

        key  the key of the buyer
        """
        if key not in self._unsent_keys:
            return
        self._unsent_keys.remove(key)
        if key not in self.requests:
            self._wait_at_barrier()
        self.requests.setdefault(key, []).append(Request(key, time.monotonic_ns()))

    def _wait_at_barrier(self) -> None:
        """Wait until the coordinator releases the buyers.

        A buyer who comes after the release, or whose rush ends during the wait, sends nothing: it
        waits forever.
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
        gc.freeze()  # so that no garbage collection scans thousands of buyers while they send
        sys.setswitchinterval(RELEASE_SWITCH_SECONDS)
        gevent.sleep(max(0.0, released_at - time.monotonic()))
        self.released_at = released_at
        self._barrier.set()

    def send_purchase(self, buyer: Buyer, buy: Callable[[Buyer], Answer]) -> Answer:
        """Call buy() for a buyer, and record the times and the answer of its request.

        The first request is built before the buyer waits at the barrier, so that only its bytes
        have to be sent after the release.
        """
        self._unsent_keys.add(buyer.key)
        answer = buy(buyer)
        # The HTTP client has usually recorded the request when it sent it, and then this call does
        # nothing. If buy() sent no request, the attempt is recorded here, because each buyer needs
        # at least one record.
        self.wait_and_record_sending(buyer.key)
        answer.record_in(self.requests[buyer.key][-1])
        return answer

    def read_and_count(self, response: Any) -> Answer:
        """Return the meaning of an answer of this project's shop, and let Locust count it."""
        answer = self.target.read(response)
        answer.let_locust_count(response)
        return answer

    def wait_before_retry(self, answer: Answer) -> bool:
        """Wait before a retry. Return whether the buyer should send the request again.

        Return False at once if the outcome is not in RETRIED_OUTCOMES, if the rush is over, if the
        deadline has passed, or if a retry might buy a second unit.
        """
        if answer.outcome not in RETRIED_OUTCOMES:
            return False
        # A third-party shop without idempotency keys may sell a second unit for a repeated request.
        # After `busy` there is no such risk, because nothing was sold.
        may_repeat = self.target.repeatable or answer.outcome == "busy"
        deadline = self.released_at + self.plan.deadline
        must_stop = self._rush_is_over or time.monotonic() > deadline
        if must_stop or not may_repeat:
            return False
        gevent.sleep(answer.choose_retry_delay())
        return True

    def finish_buyer(self) -> NoReturn:
        """Count a buyer as finished, and wait forever.

        When the last buyer who arrived at the barrier has finished, send this process's report.
        """
        self.finished += 1
        if self.finished == self.arrived:
            self.send_report()
        wait_forever()

    def report_failure(self, error: ShopUnreachable) -> NoReturn:
        """Send an error to the coordinator, which ends the rush without a verdict. Wait forever.

        error  an error in the target's file, or the error of a request that got no answer
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
        """Let the buyers send no more requests, and report the requests that they have sent."""
        self._rush_is_over = True
        self._barrier.set()  # the waiting buyers then see that the rush is over
        self.send_report()

    def send_report(self) -> None:
        """Send the coordinator all requests and answers, with times on the coordinator's clock.

        Further calls do nothing.
        """
        if self._has_reported:
            return
        self._has_reported = True
        # release() has frozen the garbage collector and changed the switch interval.
        gc.unfreeze()
        sys.setswitchinterval(USUAL_SWITCH_SECONDS)
        packed_requests: list[list[Any]] = []
        for requests in self.requests.values():
            packed_requests += [
                messages.pack_request(request, self.seconds_ahead) for request in requests
            ]
        self.send_message(messages.REPORT, arrived=self.arrived, requests=packed_requests)
