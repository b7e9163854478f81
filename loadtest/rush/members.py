"""The processes with the buyers of a rush, as the process that opened the sale sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil
from gevent.event import Event
from locust.dispatch import UsersDispatcher
from locust.env import Environment
from locust.runners import STATE_MISSING, MasterRunner, WorkerNode

from loadtest.rush import measure, messages
from loadtest.rush.rush import Rush
from loadtest.stack.client import ShopUnreachable

#: Seconds between two looks at whether every process is there, and between two announcements.
LOOK_EVERY, SAY_EVERY = 0.2, 1.0
#: The only process, where Locust has no workers.
LOCAL = "local"


class Fixed(UsersDispatcher):
    """Locust's own dispatcher, without rebalancing: it would stop buyers in their purchase. A
    worker that joins has buyers from the next rush on; those of one that is lost may have bought.
    """

    def add_worker(self, worker_node: WorkerNode) -> None:
        """Nothing changes in this rush."""

    def remove_worker(self, worker_node: WorkerNode) -> None:
        """Nothing changes in this rush."""


@dataclass
class Member:
    """One process with buyers.

    id     Locust's name of it: the machine's name, and a random part
    first  its first buyer's number; it has every n-th from there on
    pid    of a process of this machine
    ahead  seconds that its monotonic clock is ahead of ours
    error  seconds by which that may be wrong
    sent   when each of its buyers asked first
    """

    id: str
    first: int
    count: int
    pid: int = 0
    ahead: float = 0.0
    error: float = 0.0
    here: bool = False
    arrived: bool = False
    reported: bool = False
    sent: list[float] = field(default_factory=list)

    @property
    def machine(self) -> str:
        return self.id.rpartition("_")[0] or self.id

    @property
    def name(self) -> str:
        return f"worker {self.first} on {self.machine}"

    def hear(self, told: dict[str, Any], now: float) -> None:
        """Its answer to the announcement, which says what its clock was meanwhile."""
        self.here, self.error = True, (now - told["sent"]) / 2
        ahead = told["there"] - told["sent"] - self.error
        if abs(ahead) > self.error:
            self.ahead = ahead
        else:  # the same clock, to which an estimate would add its error
            self.pid = told["pid"]

    def has_ended(self) -> bool:
        """Whether a process of this machine is gone. Of another machine it is not known."""
        try:
            return bool(self.pid) and psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def figures(self, released_at: float) -> dict[str, Any]:
        """Its part of a run in summary.json, in milliseconds."""
        spread, first, last = measure.after(released_at, self.sent)
        return {
            "worker": self.first,
            "on": self.machine,
            "buyers": self.count,
            "arrival_spread_ms": spread,
            "first_ms": first,
            "last_ms": last,
            "clock_ahead_ms": round(self.ahead * 1000, 3),
            "clock_error_ms": round(self.error * 1000, 3),
            "same_clock": self.ahead == 0.0,
        }


class Members:
    """Those of one rush after the other, and what they say."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.rush: Rush | None = None
        self._of: dict[str, Member] = {}
        self._heard = Event()
        environment.dispatcher_class = Fixed
        for kind, hear in (
            (messages.HERE, lambda one, told: one.hear(told, time.monotonic())),
            (messages.ARRIVED, lambda one, told: setattr(one, "arrived", True)),
            (messages.REPORT, self._report),
            (messages.BROKEN, self._broken),
        ):
            messages.listen(environment, kind, self._listener(hear))

    def announce(self, rush: Rush, told: dict[str, Any]) -> None:
        """Say a rush to the processes that get its users, in the order in which they get them."""
        runner: Any = self.environment.runner
        is_local = not isinstance(runner, MasterRunner)
        nodes = () if is_local else runner._users_dispatcher._worker_nodes
        ids = [node.id for node in nodes] or [LOCAL]
        self.rush = rush
        self._of = {
            id: Member(id, first, len(range(first, rush.buyers, len(ids))))
            for first, id in enumerate(ids)
            if first < rush.buyers
        }
        self._announcement = {**told, "of": len(ids)}
        self._say_again()

    def _say_again(self) -> None:
        """Announce the rush to those who have not heard of it: a worker that has just connected
        does not listen yet."""
        assert self.rush is not None
        for member in self:
            if not member.here:
                clock = {"rush": self.rush.id, "sent": time.monotonic()}
                told = {**self._announcement, "first": member.first, "clock": clock}
                self._send(member, messages.RUSH, told)

    def __iter__(self) -> Any:
        return iter(list(self._of.values()))

    @property
    def is_local(self) -> bool:
        return LOCAL in self._of

    def release(self, at: float) -> None:
        """Tell all of them the moment, each by its own clock."""
        assert self.rush is not None
        for member in self:
            self._send(member, messages.GO, {"rush": self.rush.id, "at": at + member.ahead})

    def end(self) -> list[Member]:
        """Tell those who have not reported that nobody asks any more. Returns them."""
        assert self.rush is not None
        missing = [member for member in self if member.here and not member.reported]
        for member in missing:
            self._send(member, messages.END, {"rush": self.rush.id})
        return missing

    def wait(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Wait until then, or until the rush is over for another reason."""
        assert self.rush is not None
        began = said = time.monotonic()
        while not (self.rush.over or is_done() or time.monotonic() > began + seconds):
            self.listen()
            if time.monotonic() > said + SAY_EVERY:
                said = time.monotonic()
                self._say_again()
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
        runner: Any = self.environment.runner
        known = runner.clients.get(member.id)
        return known is None or known.state == STATE_MISSING or member.has_ended()

    def _send(self, member: Member, kind: str, told: dict[str, Any]) -> None:
        runner: Any = self.environment.runner
        runner.send_message(kind, told, member.id)

    def _listener(self, hear: Callable[[Member, dict[str, Any]], object]) -> Any:
        """Messages of an earlier rush, or of a worker without a part in this one, are ignored."""

        def listen(id: str, told: dict[str, Any]) -> None:
            member = self._of.get(id)
            if member is not None and self.rush is not None and told["rush"] == self.rush.id:
                hear(member, told)
                self._heard.set()

        return listen

    def _report(self, member: Member, told: dict[str, Any]) -> None:
        assert self.rush is not None
        requests = [messages.unpacked(one, member.ahead) for one in told["requests"]]
        member.sent = measure.first_sent(requests)
        member.reported = True
        self.rush.take(told["arrived"], requests)
        messages.logger.info("worker %d has reported", member.first)

    def _broken(self, member: Member, told: dict[str, Any]) -> None:
        assert self.rush is not None
        self.rush.break_off(ShopUnreachable(told["error"]))
