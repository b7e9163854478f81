"""The rushes of one Locust, in the process that opens their sales: the only one, or the master.

It announces a rush to the processes that have the buyers, lets everybody go when the last buyer is
at the barrier, and takes one report of each process. A rush that lost a process is never exact.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import psutil
from gevent.event import Event
from locust.dispatch import UsersDispatcher
from locust.env import Environment
from locust.runners import STATE_MISSING, MasterRunner, WorkerNode

from loadtest.judge.verdict import EXIT_CODES
from loadtest.rush import measure, messages
from loadtest.rush.crowd import Here
from loadtest.rush.options import SHARED, permissions, target_of
from loadtest.rush.rush import Rush
from loadtest.stack.client import ShopUnreachable
from loadtest.target.errors import TargetError
from loadtest.target.target import Target

logger = logging.getLogger("loadtest")

#: Seconds from the message to the moment of the release: the message has to be there by then.
LEAD = 0.05
#: Seconds between two looks at whether every process is there, and between two announcements.
LOOK_EVERY, SAY_EVERY = 0.2, 1.0
#: Seconds for all processes to report the requests that were never answered.
COLLECT_TIMEOUT = 5.0


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
    first  its first buyer's number; it has every `of`-th from there on
    ahead  seconds that its monotonic clock is ahead of ours, by how much that may be wrong
    pid    of a process of this machine
    """

    id: str
    first: int
    count: int
    pid: int = 0
    ahead: float = 0.0
    error: float = 0.0
    here: bool = False
    arrived: bool = False
    sent: list[float] = field(default_factory=list)
    reported: bool = False

    @property
    def name(self) -> str:
        return f"worker {self.first} on {self.id.rpartition('_')[0] or self.id}"

    def figures(self, released_at: float) -> dict[str, Any]:
        """Its part of a run in summary.json, in milliseconds."""
        spread, first, last = measure.after(released_at, self.sent)
        return {
            "worker": self.first,
            "on": self.id.rpartition("_")[0] or self.id,
            "buyers": self.count,
            "arrival_spread_ms": spread,
            "first_ms": first,
            "last_ms": last,
            "clock_ahead_ms": round(self.ahead * 1000, 3),
            "clock_error_ms": round(self.error * 1000, 3),
            "same_clock": self.ahead == 0.0,
        }


class Conductor:
    """Opens a sale for each rush, watches it, and keeps what it came to.

    token  the shop's SHOP_RESTOCK_TOKEN
    here   the buyers of this process; None in a master
    last   the result of the last rush, empty before the first one
    """

    def __init__(self, environment: Environment, token: str, here: Here | None) -> None:
        self.environment = environment
        self.here = here
        self.token = token
        self.rush: Rush | None = None
        self.members: dict[str, Member] = {}
        self.last: dict[str, Any] = {}
        #: Ends a run that would go on forever.
        self.end_the_run: Callable[[], object] = self._end_the_run
        self._heard = Event()
        environment.dispatcher_class = Fixed
        for kind, hear in (
            (messages.HERE, self._here),
            (messages.ARRIVED, self._arrived),
            (messages.REPORT, self._report),
            (messages.BROKEN, self._broken),
        ):
            messages.listen(environment, kind, hear)

    @property
    def options(self) -> Any:
        return self.environment.parsed_options

    def begin(self) -> None:
        """Open a sale, announce it to the processes with buyers, and watch the rush."""
        buyers = int(self.options.num_users or 1)
        wrong: TargetError | None = None
        try:
            target = target_of(self.environment, self.token)
        except TargetError as error:
            target, wrong = Target(self.environment.host or ""), error
        rush = self.rush = Rush(
            target=target,
            buyers=buyers,
            stock=int(self.options.stock),
            deadline_s=float(self.options.deadline),
        )
        self.members = {}
        before = dict(vars(rush.target))
        try:
            if wrong is not None:
                raise wrong
            permissions(self.environment, buyers)
            rush.open_sale()
            ids = self._workers()
            self.members = {
                id: Member(id, first, len(range(first, buyers, len(ids))))
                for first, id in enumerate(ids)
                if first < buyers
            }
            self._announce(rush, len(ids), before)
        except ShopUnreachable as error:
            rush.break_off(error)
        gevent.spawn(self._watch, rush)

    def _workers(self) -> list[str]:
        """The processes that get the users, in the order in which they get them."""
        runner: Any = self.environment.runner
        if not isinstance(runner, MasterRunner):
            return ["local"]
        return [node.id for node in runner._users_dispatcher._worker_nodes]  # type: ignore[union-attr]

    def _announce(self, rush: Rush, of: int, before: dict[str, Any]) -> None:
        is_local = "local" in self.members
        options = vars(self.options)
        rush.announcement = {
            "rush": rush.id,
            "buyers": rush.buyers,
            "of": of,
            "deadline_s": rush.deadline_s,
            "target": rush.target if is_local else messages.state(rush.target, before),
            "host": self.environment.host,
            "options": {name: options[name] for name in SHARED if name in options},
        }
        self._say_again(rush)

    def _say_again(self, rush: Rush) -> None:
        """Announce the rush to those who have not heard of it: a worker that has just connected
        does not listen yet."""
        for member in self.members.values():
            if not member.here:
                clock = {"rush": rush.id, "sent": time.monotonic()}
                told = {**rush.announcement, "first": member.first, "clock": clock}
                self._send(member, messages.RUSH, told)

    def _send(self, member: Member, kind: str, told: dict[str, Any]) -> None:
        self.environment.runner.send_message(kind, told, member.id)  # type: ignore[union-attr]

    # What the processes with buyers say.

    def _member(self, id: str, told: dict[str, Any]) -> Member | None:
        """Whose message it is; None for one of another rush."""
        self._heard.set()
        return self.members.get(id) if self.rush and told["rush"] == self.rush.id else None

    def _here(self, id: str, told: dict[str, Any]) -> None:
        if (member := self._member(id, told)) is None or member.here:
            return
        now = time.monotonic()
        member.here = True
        member.error = (now - told["sent"]) / 2
        ahead = told["there"] - told["sent"] - member.error
        if abs(ahead) > member.error:  # else it is the same clock, and an estimate adds its error
            member.ahead = ahead
        else:
            member.pid = told["pid"]

    def _arrived(self, id: str, told: dict[str, Any]) -> None:
        if (member := self._member(id, told)) is not None:
            member.arrived = True

    def _report(self, id: str, told: dict[str, Any]) -> None:
        if (member := self._member(id, told)) is None or member.reported:
            return
        assert self.rush is not None
        requests = [messages.unpacked(one, member.ahead) for one in told["requests"]]
        member.sent = measure.first_sent(requests)
        member.reported = True
        self.rush.take(told["arrived"], requests)
        logger.info("worker %d has reported", member.first)

    def _broken(self, id: str, told: dict[str, Any]) -> None:
        if self._member(id, told) is not None and self.rush is not None:
            self.rush.break_off(ShopUnreachable(told["error"]))

    # The rush.

    def _watch(self, rush: Rush) -> None:
        """Release the buyers when all are there, end the run when all have their answers. Locust
        itself would not end it."""
        members = self.members.values()
        self._wait(rush, lambda: all(one.arrived for one in members), rush.arrival_timeout)
        if not rush.over:
            slowest = max(one.error for one in members)
            at = time.monotonic() + (0.0 if "local" in self.members else max(LEAD, 4 * slowest))
            rush.released_at = at
            for member in members:
                self._send(member, messages.GO, {"rush": rush.id, "at": at + member.ahead})
            self._wait(rush, lambda: all(one.reported for one in members), rush.deadline_s + 60)
        if self.conclude(rush):
            self.end_the_run()

    def _end_the_run(self) -> None:
        runner: Any = self.environment.runner
        while isinstance(runner, MasterRunner) and not runner.spawning_completed:
            gevent.sleep(LOOK_EVERY)  # its start would go on after the stop
        runner.quit() if self.options.headless else runner.stop()

    def _wait(self, rush: Rush, is_done: Callable[[], bool], seconds: float) -> None:
        """Wait until then, or until the rush is over for another reason."""
        began = said = time.monotonic()
        while not (rush.over or is_done() or time.monotonic() > began + seconds):
            self._heard.clear()
            self._heard.wait(LOOK_EVERY)
            if time.monotonic() > said + SAY_EVERY:
                said = time.monotonic()
                self._say_again(rush)
            for member in self.members.values():
                if not member.reported and self._is_lost(member):
                    rush.lose(member.name, member.count)

    def _is_lost(self, member: Member) -> bool:
        """Whether a process has ended, or Locust has waited in vain for its heartbeats."""
        runner: Any = self.environment.runner
        if not isinstance(runner, MasterRunner):
            return False
        known = runner.clients.get(member.id)
        return known is None or known.state == STATE_MISSING or has_ended(member.pid)

    def conclude(self, rush: Rush | None, *, stopped: bool = False) -> bool:
        """Judge a rush, once, and keep the result. Returns whether this call did; another one that
        is at it is waited for."""
        if rush is None:
            return False
        if rush.is_judged:
            rush.has_result.wait(60)
            return False
        rush.is_judged = True
        rush.stopped = stopped
        try:
            self._collect(rush)
            result = rush.result()
            if rush.released_at and "local" not in self.members:
                figures = [one.figures(rush.released_at) for one in self.members.values()]
                result["locust_workers"] = figures
        except ShopUnreachable as error:
            logger.error("%s", error)
            result = rush.failed(str(error))
        except Exception as error:  # any: if this ended here, the run would never end
            logger.exception("the rush was not judged")
            result = rush.failed(f"the rush was not judged: {error!r}")
        self.last = self._written(rush, result)
        rush.has_result.set()
        logger.info("%s", sentence(self.last))
        return True

    def _collect(self, rush: Rush) -> None:
        """Nobody asks any more: take the report of those who have not sent one."""
        deadline = time.monotonic() + COLLECT_TIMEOUT
        missing = [one for one in self.members.values() if one.here and not one.reported]
        for member in missing:
            self._send(member, messages.END, {"rush": rush.id})
        while time.monotonic() < deadline:
            if all(one.reported or self._is_lost(one) for one in missing):
                return
            self._heard.clear()
            self._heard.wait(LOOK_EVERY)

    def _written(self, rush: Rush, result: dict[str, Any]) -> dict[str, Any]:
        """The result, once it and the history are in their files. A run without them is no
        evidence."""

        def dump(path: str) -> None:
            Path(path).write_text(json.dumps(result))

        for option, write in (("history", rush.write), ("result", dump)):
            try:
                if path := getattr(self.options, option):
                    write(path)
            except OSError as error:
                message = f"--{option} cannot be written ({error}): name a file that can be"
                logger.error("%s", message)
                result = {**result, "verdict": "unknown", "error": message}
        return result

    def progress(self) -> dict[str, Any] | None:
        """How far the present rush is; `left_s`: seconds until its buyers give up, None before
        their release. Of several processes only reports are known."""
        rush = self.rush
        if rush is None or rush.is_judged:
            return None
        left = rush.released_at + rush.deadline_s - time.monotonic()
        crowd = None if self.here is None else self.here.crowd
        arrived = sum(one.count for one in self.members.values() if one.arrived)
        return {
            "sale": rush.target.sale,
            "lock": rush.target.name,
            "buyers": rush.buyers,
            "arrived": crowd.arrived if crowd else arrived,
            "answered": crowd.left if crowd else rush.arrived,
            "left_s": round(max(0.0, left), 1) if rush.released_at else None,
        }

    def exit_code(self) -> int:
        """That of the last verdict; `unknown` until there is one."""
        return EXIT_CODES[self.last.get("verdict", "unknown")]


def sentence(result: dict[str, Any]) -> str:
    """What a rush came to, in a line or a few."""
    said = (
        f"{result['verdict'].upper()} [{result.get('lock')}]: {result.get('orders')} orders for "
        f"{result.get('initial_stock')} units, {result.get('stock_left')} left on the shelf"
    )
    more = [f"not judged: {what}" for what in result.get("not_judged", ())]
    more += [str(result[name]) for name in ("why", "error") if result.get(name)]
    return "\n".join([said, *more])


def has_ended(pid: int) -> bool:
    """Whether a process of this machine is gone; 0 is on another machine, and not known."""
    if not pid:
        return False
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
