"""One rush, in the process that opens its sale. It is announced to the processes that have the
buyers, lets everybody go when the last buyer is at the barrier, takes one report of each process,
and is judged. A rush that lost a process is never exact.
"""

import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import psutil
from gevent import event

from loadtest.judge.history import Event
from loadtest.judge.intervals import Request
from loadtest.judge.verdict import Judgement
from loadtest.rush import messages
from loadtest.rush.figures import figures, judge_cut_short, recorded
from loadtest.rush.messages import logger
from loadtest.stack.client import ShopUnreachable
from loadtest.target.count import Count, match, scope
from loadtest.target.target import Target

#: The only process, where Locust has no workers.
LOCAL = "local"
#: Seconds from the message to the moment of the release: the message has to be there by then.
LEAD = 0.05
#: Seconds between two looks at whether every process is there.
LOOK_EVERY = 0.2
#: Seconds for all processes to report the requests that were never answered.
COLLECT_TIMEOUT = 5.0


@dataclass
class Member:
    """One process with buyers.

    id      Locust's name of it: the machine's name, and a random part
    buyers  the numbers of its buyers
    pid     its process; 0 before it says that it is here
    """

    id: str
    buyers: range
    pid: int = 0
    arrived: bool = False
    reported: bool = False

    @property
    def machine(self) -> str:
        return self.id.rpartition("_")[0] or self.id

    def has_ended(self) -> bool:
        """Whether a process of this machine is gone. Of another machine it is not known."""
        try:
            is_known = self.pid and self.machine == socket.gethostname()
            return bool(is_known) and psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


@dataclass
class Rush:
    """The buyers of one sale, and what they asked.

    runner       Locust's
    workers      Locust's names of the processes that have the buyers; none: this one has
    released_at  the moment of the monotonic clock at which everybody may buy; 0 before that
    stopped      whether it was stopped before everybody had an answer
    broken       why there is no verdict: the target is wrong, or a process ended before the release
    lost         who ended after the release, with buyers that had no answer
    """

    target: Target
    buyers: int
    stock: int
    deadline_s: float
    runner: Any = None
    workers: Sequence[str] = ()
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    arrived: int = 0
    released_at: float = 0.0
    requests: list[Request] = field(default_factory=list)
    stopped: bool = False
    broken: ShopUnreachable | None = None
    lost: list[str] = field(default_factory=list)
    is_judged: bool = False

    def __post_init__(self) -> None:
        ids = (self.workers or [LOCAL])[: self.buyers]
        self.members = {
            id: Member(id, range(first, self.buyers, len(ids))) for first, id in enumerate(ids)
        }
        self._heard = event.Event()

    @cached_property
    def count(self) -> Count:
        names = [f"buyer-{number}" for number in range(self.buyers)]
        return Count(self.target, {name: f"{self.id}/{name}" for name in names})

    def open(self) -> dict[str, Any]:
        """Open the sale. Returns the announcement, with the share of each process as a range: its
        first buyer and every n-th after it. Raises ShopUnreachable."""
        before = dict(vars(self.target))
        self.count.open(self.stock)
        shares = {id: one.buyers for id, one in self.members.items()}
        return {
            "rush": self.id,
            "deadline_s": self.deadline_s,
            "clock": messages.clock(),
            "state": messages.state(self.target, before) if self.workers else {},
            "shares": {id: (own.start, own.stop, own.step) for id, own in shares.items()},
        }

    def watch(self) -> None:
        """Release the buyers when all are there, and wait until all have their answers."""
        arrival_timeout = self.buyers / 20 + self.target.prepare_s
        self._wait(lambda: self._are_all(lambda one: one.arrived), arrival_timeout)
        if not self.over:
            self.released_at = time.monotonic() + (LEAD if self.workers else 0.0)
            go = {"rush": self.id, "at": self.released_at}
            for member in self.members.values():
                self.runner.send_message(messages.GO, go, member.id)
            self._wait(lambda: self._are_all(lambda one: one.reported), self.deadline_s + 60)

    @property
    def over(self) -> bool:
        """Whether there will be no verdict, whatever else happens."""
        return bool(self.broken or self.lost or self.is_judged)

    def _are_all(self, is_done: Callable[[Member], bool]) -> bool:
        """Whether nothing is left to wait for: of all this is so, or one of them is lost."""
        if self.over or all(map(is_done, self.members.values())):
            return True
        for member in self.members.values():
            if not member.reported and self._is_lost(member):
                self.lose(member)
        return self.over

    def _wait(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Wait until it is over, and look again with every message, and every LOOK_EVERY."""
        until = time.monotonic() + seconds
        while not is_over() and time.monotonic() < until:
            self._heard.clear()
            self._heard.wait(LOOK_EVERY)

    def _is_lost(self, member: Member) -> bool:
        """Whether a process has ended, or Locust has waited in vain for its heartbeats."""
        if member.id == LOCAL:
            return False
        clients = self.runner.clients
        known = clients.get(member.id)
        return known is None or known in clients.missing or member.has_ended()

    def lose(self, member: Member) -> None:
        """A process is gone. Nobody knows what its buyers have asked since the release."""
        who, many = f"worker {member.buyers.start} on {member.machine}", len(member.buyers)
        if self.released_at:
            self.lost.append(f"{who} is gone, {many} of its buyers had no answer")
            return
        what = f"{who} is gone, and with it {many} of {self.buyers} buyers: nobody was released"
        why = ShopUnreachable(f"{what}. Its log says why; start it and the rush again")
        self.broken = self.broken or why

    def hear(self, msg: Any) -> None:
        """Take a message of a process with buyers; that of another one is ignored."""
        member, told = self.members.get(msg.node_id), msg.data
        if member is None:
            return
        match msg.type:
            case messages.HERE:
                member.pid = told["pid"]
            case messages.ARRIVED:
                member.arrived = True
            case messages.REPORT:
                member.reported = True
                self.arrived += told["arrived"]
                self.requests += [Request(*one) for one in told["requests"]]
                logger.info("worker %d has reported", member.buyers.start)
            case messages.BROKEN:
                self.broken = self.broken or ShopUnreachable(told["error"])
        self._heard.set()

    # --- its end --------------------------------------------------------------------------------

    def judged(self) -> dict[str, Any]:
        """The run of this rush; `unknown` where it could not be judged. Nobody asks any more: who
        has not sent a report does so now."""
        missing = [one for one in self.members.values() if one.pid and not one.reported]
        try:
            for member in missing:
                self.runner.send_message(messages.END, {"rush": self.id}, member.id)
            self._wait(
                lambda: all(one.reported or self._is_lost(one) for one in missing), COLLECT_TIMEOUT
            )
            return self.result()
        except ShopUnreachable as error:
            logger.error("%s", error)
            reason = str(error)
        except Exception as error:  # any: if this ended here, the run would never end
            logger.exception("the rush was not judged")
            reason = f"the rush was not judged: {error!r}"
        of = {"lock": self.target.name, "sale": self.target.sale}
        return {**of, "verdict": "unknown", "error": reason}

    def events(self) -> list[Event]:
        """Every request and every answer, oldest first."""
        return recorded(self.requests, self.target.name, self.target.product, self.target.sale)

    def result(self) -> dict[str, Any]:
        """This run as `summary.json` has it, from the shop's own record. One that was stopped, or
        lost buyers, is `unknown`, unless it had oversold by then. Raises ShopUnreachable."""
        if self.broken is not None:
            raise self.broken
        last = {one.attempt: one for one in self.requests}
        self.count.settle(sum(one.outcome == "sold" for one in last.values()))
        left, opened = self.count.stock(), self.count.opened
        found = self.count.orders()
        orders = match(found, self.requests, keyed=self.target.keyed)
        judgement = Judgement(
            events=self.events(),
            initial_stock=self.stock,
            opened=self.stock if opened is None else opened,
            stock_left=self.stock - len(orders) if left is None else left,
            orders=orders,
            unsettled=self.target.unsettled(),
            buyers=list(self.count.keys.values()),
            arrived=self.buyers if self.lost else self.arrived,
            lock=self.target.name,
            product=self.target.product,
            sale=self.target.sale,
            undisturbed=True,
        )
        run: dict[str, Any] = {
            "lock": self.target.name,
            "fault": "rush",
            "sale": self.target.sale,
            "attempts": self.id,
            "buyers": self.buyers,
            "arrived": self.arrived,
            "hold_ms": self.target.hold_ms,
            **judgement.as_run(),
            **figures(self.requests),
        }
        run |= scope(self.target, listed=not isinstance(found, int), shows_stock=left is not None)
        if left is None:
            run |= {"stock_left": None, "lost_updates": None}
        run |= {"stopped": True} if self.stopped else {}
        run |= {"lost": self.lost} if self.lost else {}
        judge_cut_short(run)
        return run
