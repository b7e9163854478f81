"""The processes with the buyers of a rush, as the process that opened the sale sees them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil
from gevent.event import Event
from locust.dispatch import UsersDispatcher
from locust.runners import STATE_MISSING, MasterRunner, WorkerNode

from loadtest.judge.intervals import Request
from loadtest.rush import messages
from loadtest.rush.rush import Rush
from loadtest.stack.client import ShopUnreachable

#: Seconds between two looks at whether every process is there.
LOOK_EVERY = 0.2
#: The only process, where Locust has no workers.
LOCAL = "local"


class Fixed(UsersDispatcher):
    """Locust's own dispatcher, without rebalancing: it would stop buyers in their purchase. A
    worker that joins has buyers from the next rush on; those of one that is lost may have bought.
    """

    def add_worker(self, worker_node: WorkerNode) -> None:
        """Nothing changes in this rush."""

    remove_worker = add_worker


@dataclass
class Member:
    """One process with buyers.

    id       Locust's name of it: the machine's name, and a random part
    first    its first buyer's number; it has every n-th from there on
    pid      its process; 0 before it says that it is here
    error    seconds by which what it knows of our clock may be wrong
    figures  its part of a run in summary.json, which it reports
    """

    id: str
    first: int
    count: int
    pid: int = 0
    error: float = 0.0
    arrived: bool = False
    reported: bool = False
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def machine(self) -> str:
        return self.id.rpartition("_")[0] or self.id

    @property
    def name(self) -> str:
        return f"worker {self.first} on {self.machine}"

    def has_ended(self) -> bool:
        """Whether a process of this machine is gone. Of another machine it is not known."""
        try:
            is_known = self.pid and self.machine == socket.gethostname()
            return bool(is_known) and psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


class Members:
    """Those of one rush after the other, and what they say."""

    def __init__(self, environment: Any) -> None:
        self.runner = environment.runner
        self.rush: Rush | None = None
        self._of: dict[str, Member] = {}
        self._heard = Event()
        environment.dispatcher_class = Fixed
        for kind, hear in (
            (messages.HERE, self._here),
            (messages.ARRIVED, self._arrived),
            (messages.REPORT, self._report),
            (messages.BROKEN, self._broken),
        ):
            self.runner.register_message(kind, partial(self._listen, hear))

    def expect(self, rush: Rush) -> dict[str, tuple[int, int]]:
        """Expect the buyers of a rush from the processes that get its users. Returns the share of
        each: its first buyer, and the step to the next, in the order in which they get users."""
        is_master = isinstance(self.runner, MasterRunner)
        nodes = self.runner._users_dispatcher._worker_nodes if is_master else ()
        ids = [node.id for node in nodes] or [LOCAL]
        self.rush = rush
        self._of = {
            id: Member(id, first, len(range(first, rush.buyers, len(ids))))
            for first, id in enumerate(ids)
            if first < rush.buyers
        }
        return {id: (member.first, len(ids)) for id, member in self._of.items()}

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._of.values()))

    def release(self, at: float) -> None:
        """Tell all of them the moment, by our clock."""
        for member in self:
            self._send(member, messages.GO, at=at)

    def end(self) -> list[Member]:
        """Tell those who have not reported that nobody asks any more. Returns them."""
        missing = [member for member in self if member.pid and not member.reported]
        for member in missing:
            self._send(member, messages.END)
        return missing

    def wait(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Wait until then, or until the rush is over for another reason."""
        assert self.rush is not None
        until = time.monotonic() + seconds
        while not (self.rush.over or is_done() or time.monotonic() > until):
            self.listen()
            for member in self:
                if not member.reported and self.is_lost(member):
                    self.rush.lose(member.name, member.count)

    def listen(self) -> None:
        """Wait for a message, at most LOOK_EVERY."""
        self._heard.clear()
        self._heard.wait(LOOK_EVERY)

    def is_lost(self, member: Member) -> bool:
        """Whether a process has ended, or Locust has waited in vain for its heartbeats."""
        if member.id == LOCAL:
            return False
        known = self.runner.clients.get(member.id)
        return known is None or known.state == STATE_MISSING or member.has_ended()

    def _send(self, member: Member, kind: str, **data: Any) -> None:
        assert self.rush is not None
        self.runner.send_message(kind, {"rush": self.rush.id, **data}, member.id)

    def _listen(self, hear: Callable[[Member, Any], object], msg: Any, **_: Any) -> None:
        """Messages of an earlier rush, or of a worker without a part in this one, are ignored."""
        member = self._of.get(msg.node_id)
        if member is not None and self.rush is not None and msg.data["rush"] == self.rush.id:
            hear(member, msg.data)
            self._heard.set()

    def _here(self, member: Member, told: dict[str, Any]) -> None:
        member.pid = told["pid"]
        self._send(member, messages.CLOCK, sent=told["sent"], there=time.monotonic())

    def _arrived(self, member: Member, told: dict[str, Any]) -> None:
        member.arrived, member.error = True, told["error"]

    def _report(self, member: Member, told: dict[str, Any]) -> None:
        assert self.rush is not None
        member.reported, member.figures = True, told["figures"]
        self.rush.take(told["arrived"], [Request(*one) for one in told["requests"]])
        messages.logger.info("worker %d has reported", member.first)

    def _broken(self, member: Member, told: dict[str, Any]) -> None:
        assert self.rush is not None
        self.rush.break_off(ShopUnreachable(told["error"]))
