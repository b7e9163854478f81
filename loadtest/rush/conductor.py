"""The rushes of one Locust, in the process that opens their sales: the only one, or the master.

It announces a rush to the processes that have the buyers, lets everybody go when the last buyer is
at the barrier, and takes one report of each process. A rush that lost a process is never exact.
"""

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
import psutil
from gevent.event import Event
from gevent.lock import RLock
from locust.dispatch import UsersDispatcher
from locust.env import Environment
from locust.runners import STATE_MISSING, MasterRunner, WorkerNode

from loadtest.judge.intervals import Request
from loadtest.rush import messages
from loadtest.rush.messages import logger
from loadtest.rush.options import permissions, target_of
from loadtest.rush.rush import Rush, sentence
from loadtest.stack.client import ShopUnreachable
from loadtest.target.target import Target

#: The only process, where Locust has no workers.
LOCAL = "local"
#: Seconds from the message to the moment of the release: the message has to be there by then.
LEAD = 0.05
#: Seconds between two looks at whether every process is there.
LOOK_EVERY = 0.2
#: Seconds for all processes to report the requests that were never answered.
COLLECT_TIMEOUT = 5.0


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

    @property
    def name(self) -> str:
        return f"worker {self.buyers.start} on {self.machine}"

    def has_ended(self) -> bool:
        """Whether a process of this machine is gone. Of another machine it is not known."""
        try:
            is_known = self.pid and self.machine == socket.gethostname()
            return bool(is_known) and psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


class Conductor:
    """Opens a sale for each rush, watches it, and keeps its result.

    token    the shop's SHOP_RESTOCK_TOKEN
    last     the result of the last rush, empty before the first one
    members  the processes with the buyers of the present rush, by Locust's names of them
    """

    rush: Rush | None = None
    runner: Any

    def __init__(self, environment: Environment, token: str) -> None:
        self.environment = environment
        self.runner = environment.runner
        self.options: Any = environment.parsed_options
        self.token = token
        self.has_workers = isinstance(self.runner, MasterRunner)
        self.last: dict[str, Any] = {}
        self.members: dict[str, Member] = {}
        self._heard, self._judging = Event(), RLock()
        #: Ends a run that would go on forever.
        self.end_the_run: Callable[[], object] = self._end_the_run
        environment.dispatcher_class = Fixed
        for kind in (messages.HERE, messages.ARRIVED, messages.REPORT, messages.BROKEN):
            self.runner.register_message(kind, self._listen)

    def begin(self) -> None:
        """Open a sale, announce it to the processes with buyers, and watch the rush."""
        options = self.options
        rush = self.rush = Rush(
            target=Target(self.environment.host or ""),
            buyers=int(options.num_users or 1),
            stock=int(options.stock),
            deadline_s=float(options.deadline),
        )
        options.rush = None
        self.members = {}
        try:
            rush.target = target_of(self.environment, self.token)
            permissions(self.environment, rush.buyers)
            before = dict(vars(rush.target))
            rush.count.open(rush.stock)
            options.rush = {
                "rush": rush.id,
                "deadline_s": rush.deadline_s,
                "clock": messages.clock(),
                "state": messages.state(rush.target, before) if self.has_workers else {},
                "shares": self._share(rush),
            }
        except ShopUnreachable as error:
            rush.break_off(error)
        gevent.spawn(self._watch, rush)

    def _share(self, rush: Rush) -> dict[str, tuple[int, int, int]]:
        """Expect the buyers of a rush from the processes that get its users, in the order in which
        they do. Returns the share of each, as a range: its first buyer and every n-th after it."""
        nodes = self.runner._users_dispatcher._worker_nodes if self.has_workers else ()
        ids = [node.id for node in nodes] or [LOCAL]
        self.members = {
            id: Member(id, range(first, rush.buyers, len(ids)))
            for first, id in enumerate(ids)
            if first < rush.buyers
        }
        return {id: (one.buyers.start, rush.buyers, len(ids)) for id, one in self.members.items()}

    def _watch(self, rush: Rush) -> None:
        """Release the buyers when all are there, end the run when all have their answers. Locust
        itself would not end it."""
        members = list(self.members.values())

        def are_done(is_done: Callable[[Member], bool]) -> bool:
            if rush.over or all(map(is_done, members)):
                return True
            for member in members:
                if not member.reported and self._is_lost(member):
                    rush.lose(member.name, len(member.buyers))
            return rush.over

        self._wait(lambda: are_done(lambda one: one.arrived), rush.arrival_timeout)
        if not rush.over:
            rush.released_at = time.monotonic() + (LEAD if self.has_workers else 0.0)
            go = {"rush": rush.id, "at": rush.released_at}
            for member in members:
                self.runner.send_message(messages.GO, go, member.id)
            self._wait(lambda: are_done(lambda one: one.reported), rush.deadline_s + 60)
        if self.conclude(rush):
            self.end_the_run()

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
        known = self.runner.clients.get(member.id)
        return known is None or known.state == STATE_MISSING or member.has_ended()

    def _end_the_run(self) -> None:
        while self.has_workers and not self.runner.spawning_completed:
            gevent.sleep(LOOK_EVERY)  # its start would go on after the stop
        self.runner.quit() if self.options.headless else self.runner.stop()

    # --- what the processes say -----------------------------------------------------------------

    def _listen(self, msg: Any, **_: Any) -> None:
        """Messages of an earlier rush, or of a worker without a part in this one, are ignored."""
        rush, member, told = self.rush, self.members.get(msg.node_id), msg.data
        if rush is None or member is None or told["rush"] != rush.id:
            return
        match msg.type:
            case messages.HERE:
                member.pid = told["pid"]
            case messages.ARRIVED:
                member.arrived = True
            case messages.REPORT:
                member.reported = True
                rush.take(told["arrived"], [Request(*one) for one in told["requests"]])
                logger.info("worker %d has reported", member.buyers.start)
            case messages.BROKEN:
                rush.break_off(ShopUnreachable(told["error"]))
        self._heard.set()

    # --- the end --------------------------------------------------------------------------------

    def conclude(self, rush: Rush | None, *, stopped: bool = False) -> bool:
        """Judge a rush, once, and keep the result. Returns whether this call did; another one that
        is at it is waited for."""
        with self._judging:
            if rush is None or rush.is_judged:
                return False
            rush.is_judged, rush.stopped = True, stopped
            self.last = self._written(rush, self._judged(rush))
            logger.info("%s", sentence(self.last))
            return True

    def _judged(self, rush: Rush) -> dict[str, Any]:
        """The result of a rush; `unknown` where it could not be judged."""
        try:
            self._collect(rush)
            return rush.result()
        except ShopUnreachable as error:
            logger.error("%s", error)
            return rush.failed(str(error))
        except Exception as error:  # any: if this ended here, the run would never end
            logger.exception("the rush was not judged")
            return rush.failed(f"the rush was not judged: {error!r}")

    def _collect(self, rush: Rush) -> None:
        """Take the report of those who have not sent one: nobody asks any more."""
        missing = [one for one in self.members.values() if one.pid and not one.reported]
        for member in missing:
            self.runner.send_message(messages.END, {"rush": rush.id}, member.id)
        self._wait(
            lambda: all(one.reported or self._is_lost(one) for one in missing), COLLECT_TIMEOUT
        )

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
