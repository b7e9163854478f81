"""The buyers of one process in a rush: they wait at a barrier, ask, and report once."""

import gc
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import gevent
from gevent.event import Event

from loadtest.judge.intervals import Request
from loadtest.judge.verdict import ASK_AGAIN
from loadtest.rush import messages
from loadtest.rush.connections import watch
from loadtest.rush.visit import Visit
from loadtest.stack.client import ShopUnreachable
from loadtest.target.answer import Answer
from loadtest.target.ours import OurShop
from loadtest.target.target import Buyer, Target

#: Seconds for which gevent runs what is ready before it looks for answers: in a release all send.
USUAL, ALL_SEND = sys.getswitchinterval(), 1.0


def stay() -> NoReturn:
    """Wait until Locust stops this user: it would replace one that ends."""
    while True:
        Event().wait()


@dataclass
class Crowd:
    """The buyers of this process in one rush.

    Counting arrivals gives a spread of some tens of milliseconds. With Locust's `spawning_complete`
    some buyers would still be connecting.

    told     the announcement of the rush
    numbers  of the buyers of this process
    say      sends a message to the process that opened the sale
    ahead    seconds that the clock of this machine is ahead of that one's
    """

    told: Mapping[str, Any]
    numbers: range
    target: Target
    nodes: list[str]
    say: Callable[..., object]
    requests: dict[str, list[Request]] = field(default_factory=dict)
    arrived: int = 0
    left: int = 0
    released_at: float = 0.0
    _is_over: bool = False
    _has_reported: bool = False

    def __post_init__(self) -> None:
        self.id = str(self.told["rush"])
        self.ahead = messages.ahead_of(self.told["clock"])
        self._to_join, self._barrier = iter(self.numbers), Event()
        self._asking: set[str] = set()

    def join(self, user: Any) -> Buyer:
        """The next buyer: its number, its key, and its node of the shop. A user beyond the buyers
        of this rush stays here: somebody pressed w in Locust's terminal."""
        number = next(self._to_join, None)
        if number is None:
            stay()
        user.client.base_url = self.nodes[number % len(self.nodes)]
        me = Buyer(number, f"{self.id}/buyer-{number}", user.client)
        watch(user.client, lambda: self.send(me.key))
        return me

    def steps(self, user: Any) -> Any:
        """The object whose methods are a buyer's steps: Locust's user, or the target's file."""
        if isinstance(self.target, OurShop):
            return user
        return Visit(self.target, self.nodes, user.client, self.break_off)

    def send(self, key: str) -> None:
        """A request of this buyer is built, and now it is sent: this is its moment. The first one
        of its purchase waits at the barrier."""
        if key not in self._asking:  # to connect, or the second request of one buy()
            return
        self._asking.remove(key)
        if key not in self.requests:
            self._wait()
        self.requests.setdefault(key, []).append(Request(key, time.monotonic_ns()))

    def _wait(self) -> None:
        """Wait at the barrier until every buyer of the rush is there."""
        if self._barrier.is_set():  # too late: nobody waits for this one any more
            stay()
        self.arrived += 1
        if self.arrived == len(self.numbers):
            self.say(messages.ARRIVED)
        self._barrier.wait()
        if self._is_over:
            stay()

    def release(self, at: float) -> None:
        """Let everybody buy who is there, at this moment of the other's monotonic clock."""
        at += self.ahead
        gc.freeze()  # no collection walks through thousands of buyers while they send
        sys.setswitchinterval(ALL_SEND)
        gevent.sleep(max(0.0, at - time.monotonic()))
        self.released_at = at
        self._barrier.set()

    def ask(self, me: Buyer, buy: Callable[[Buyer], Answer]) -> Answer:
        """Let a buyer ask, and record when it asked and what it was answered. The first time, its
        request waits at the barrier with nothing left to do but to send its bytes."""
        self._asking.add(me.key)
        answer = buy(me)
        self.send(me.key)  # where no connection was asked for
        answer.record(self.requests[me.key][-1])
        return answer

    def read(self, response: Any) -> Answer:
        """The meaning of an answer of our shop, which Locust counts by it."""
        answer = self.target.read(response)
        answer.count(response)
        return answer

    def asks_again(self, answer: Answer) -> bool:
        """Whether a buyer with this answer asks again: it may, and it is not too late. Waits before
        it does."""
        may = answer.outcome == "busy" or self.target.repeatable
        is_late = self._is_over or time.monotonic() > self.released_at + self.told["deadline_s"]
        if not may or answer.outcome not in ASK_AGAIN or is_late:
            return False
        gevent.sleep(answer.pause())
        return True

    def leave(self) -> NoReturn:
        """A buyer has its last answer. The last buyer reports for all, and everybody stays."""
        self.left += 1
        if self.left == self.arrived:
            self.report()
        stay()

    def break_off(self, error: ShopUnreachable) -> NoReturn:
        """The target is wrong: there will be no verdict."""
        self.say(messages.BROKEN, error=str(error))
        stay()

    def hear(self, msg: Any) -> None:
        """Take a message of the process that opened the sale."""
        if msg.type == messages.GO:
            gevent.spawn(self.release, msg.data["at"])
        elif msg.type == messages.END:
            self.close()

    def close(self) -> None:
        """End the rush: nobody asks any more. Report what was asked by now."""
        self._is_over = True
        self._barrier.set()
        self.report()

    def report(self) -> None:
        """Send all requests of these buyers and their answers, once, by the other's clock."""
        if self._has_reported:
            return
        self._has_reported = True
        gc.unfreeze()
        sys.setswitchinterval(USUAL)
        asked = [one for requests in self.requests.values() for one in requests]
        packed = [messages.packed(one, self.ahead) for one in asked]
        self.say(messages.REPORT, arrived=self.arrived, requests=packed)
