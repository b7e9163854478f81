"""The rushes of one Locust: it opens their sales, has their buyers, or does both.

The process that opens the sales is the only one, or the master. It announces a rush to the
processes that have the buyers, lets everybody go when the last buyer is at the barrier, and takes
one report of each process. A rush that lost a process is never exact.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import locust.runners
from gevent.event import Event
from gevent.lock import RLock
from locust.dispatch import UsersDispatcher
from locust.env import Environment
from locust.exception import RPCError
from locust.runners import STATE_MISSING, MasterRunner, WorkerNode, WorkerRunner

from loadtest.judge.history import History
from loadtest.judge.intervals import Request
from loadtest.judge.verdict import EXIT_CODES
from loadtest.rush import messages
from loadtest.rush.bounds import allow
from loadtest.rush.crowd import Crowd, stay
from loadtest.rush.messages import logger
from loadtest.rush.options import add_arguments, hosts, permissions, target_of
from loadtest.rush.rush import Member, Rush, sentence
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.node import StackError
from loadtest.target.errors import TargetError
from loadtest.target.target import Target
from servers.loopback import ask_loopback_directly

__all__ = ["Rushes", "add_arguments"]

#: The only process, where Locust has no workers.
LOCAL = "local"
#: Seconds without a heartbeat after which Locust takes a worker for lost. Its 3 are too few where
#: thousands of buyers begin at once. A worker keeps the limit that held when it connected.
locust.runners.HEARTBEAT_LIVENESS = 20
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


class Rushes:
    """The rushes of one Locust, one after the other.

    opens_sales  whether this process does: it is no worker
    token        the shop's SHOP_RESTOCK_TOKEN
    rush         the last one whose sale this process opened
    last         the result of the last one that was judged, empty before the first
    crowd        the buyers of this process in the last rush that it had buyers in
    """

    environment: Environment
    runner: Any
    options: Any
    opens_sales = False
    token = ""
    rush: Rush | None = None
    crowd: Crowd | None = None

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self.is_set_up, self._heard = Event(), Event()
        self._gathering, self._judging = RLock(), RLock()
        #: Ends a run that would go on forever.
        self.end_the_run: Callable[[], object] = self._end_the_run

    def set_up(self, environment: Any) -> None:
        """Ends the process with 2 where the target cannot be used."""
        ask_loopback_directly()
        self.environment, self.runner = environment, environment.runner
        options = self.options = environment.parsed_options
        self.token, options.restock_token = options.restock_token, ""  # workers get the options
        vars(options).setdefault("rush", None)
        for kind in (messages.GO, messages.END):
            self.runner.register_message(kind, self._obey)
        if isinstance(self.runner, WorkerRunner):
            environment.process_exit_code = 0  # the verdict is the master's
        else:
            try:
                target_of(environment)
                for warning in permissions(environment, int(options.num_users or 1)):
                    logger.warning("%s", warning)
            except TargetError as error:
                logger.error("%s", error)
                sys.exit(2)
            environment.dispatcher_class = Fixed
            for kind in (messages.HERE, messages.ARRIVED, messages.REPORT, messages.BROKEN):
                self.runner.register_message(kind, self._listen)
            self.opens_sales = True
            gc.freeze()  # no collection walks through what is loaded, in a rush or at the end
        self.is_set_up.set()

    # --- the buyers of this process -------------------------------------------------------------

    def join(self) -> Crowd:
        """The present rush, for a buyer of this process."""
        self.is_set_up.wait()  # a worker may have users before that
        with self._gathering:
            told = self.options.rush
            if told and (self.crowd is None or self.crowd.id != told["rush"]):
                self._gather(told)
        return self.crowd or stay()

    def _gather(self, told: dict[str, Any]) -> None:
        """Begin a rush, as it was announced."""
        share = told["shares"].get(self.runner.client_id) or told["shares"].get(LOCAL)
        if share is None:  # Locust has sent users nevertheless
            stay()

        def say(kind: str, **data: Any) -> None:
            with suppress(RPCError):  # the master is gone: Locust ends this process after a minute
                self.runner.send_message(kind, {"rush": told["rush"], **data})

        numbers = range(*share)
        try:
            if self.rush is not None:
                target = self.rush.target
            else:
                target = target_of(self.environment)
                vars(target).update(told["state"])
            allow(len(numbers), what=f"Locust with {len(numbers)} buyers in a process",
                  otherwise="take more processes")  # fmt: skip
        except (ShopUnreachable, StackError) as error:
            say(messages.BROKEN, error=str(error))
            stay()
        self.crowd = Crowd(told, numbers, target, hosts(self.environment), say)
        say(messages.HERE, pid=os.getpid())

    def _obey(self, msg: Any, **_: Any) -> None:
        """Messages of another rush are ignored."""
        if self.crowd is None or self.crowd.id != msg.data["rush"]:
            return
        if msg.type == messages.GO:
            gevent.spawn(self.crowd.release, msg.data["at"])
        else:
            self.crowd.close()

    # --- the rush, where its sale is opened -----------------------------------------------------

    def begin(self) -> None:
        """Open a sale, announce it to the processes with buyers, and watch the rush."""
        if not self.opens_sales:
            return
        options = self.options
        rush = self.rush = Rush(
            target=Target(self.environment.host or ""),
            buyers=int(options.num_users or 1),
            stock=int(options.stock),
            deadline_s=float(options.deadline),
        )
        options.rush = None
        has_workers = isinstance(self.runner, MasterRunner)
        try:
            rush.target = target_of(self.environment, self.token)
            permissions(self.environment, rush.buyers)
            before = dict(vars(rush.target))
            rush.count.open(rush.stock)
            # Locust's workers get its users in this order.
            nodes = self.runner._users_dispatcher._worker_nodes if has_workers else ()
            options.rush = {
                "rush": rush.id,
                "deadline_s": rush.deadline_s,
                "clock": messages.clock(),
                "state": messages.state(rush.target, before) if has_workers else {},
                "shares": rush.share([node.id for node in nodes] or [LOCAL]),
            }
        except ShopUnreachable as error:
            rush.break_off(error)
        gevent.spawn(self._watch, rush, LEAD if has_workers else 0.0)

    def _watch(self, rush: Rush, lead: float) -> None:
        """Release the buyers when all are there, end the run when all have their answers. Locust
        itself would not end it."""
        members = list(rush.members.values())

        def are_done(is_done: Callable[[Member], bool]) -> bool:
            if rush.over or all(map(is_done, members)):
                return True
            for member in members:
                if not member.reported and self._is_lost(member):
                    rush.lose(member)
            return rush.over

        arrival_timeout = rush.buyers / 20 + rush.target.prepare_s
        self._wait(lambda: are_done(lambda one: one.arrived), arrival_timeout)
        if not rush.over:
            rush.released_at = time.monotonic() + lead
            go = {"rush": rush.id, "at": rush.released_at}
            for member in members:
                self.runner.send_message(messages.GO, go, member.id)
            self._wait(lambda: are_done(lambda one: one.reported), rush.deadline_s + 60)
        if self._conclude(rush):
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
        while isinstance(self.runner, MasterRunner) and not self.runner.spawning_completed:
            gevent.sleep(LOOK_EVERY)  # its start would go on after the stop
        self.runner.quit() if self.options.headless else self.runner.stop()

    def _listen(self, msg: Any, **_: Any) -> None:
        """Messages of an earlier rush, or of a worker without a part in this one, are ignored."""
        rush, told = self.rush, msg.data
        member = None if rush is None else rush.members.get(msg.node_id)
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

    def progress(self) -> dict[str, Any] | None:
        """How far the present rush is; `left_s`: seconds until its buyers give up, None before
        their release. Of several processes only reports are known."""
        rush = self.rush
        if rush is None or rush.is_judged:
            return None
        left = rush.released_at + rush.deadline_s - time.monotonic()
        members = rush.members.values()
        arrived, answered = sum(len(one.buyers) for one in members if one.arrived), rush.arrived
        if self.crowd is not None and self.crowd.id == rush.id:
            arrived, answered = self.crowd.arrived, self.crowd.left
        return {
            "sale": rush.target.sale,
            "lock": rush.target.name,
            "buyers": rush.buyers,
            "arrived": arrived,
            "answered": answered,
            "left_s": round(max(0.0, left), 1) if rush.released_at else None,
        }

    # --- its end --------------------------------------------------------------------------------

    def end(self) -> None:
        """Judge a rush that is stopped in its middle, by a button, a signal or --run-time."""
        if self.rush is not None:
            self._conclude(self.rush, stopped=True)

    def verdict(self) -> tuple[str, int]:
        """The result of the last rush, and the exit code; nothing of a worker."""
        if not self.opens_sales:
            return "", 0
        self.end()
        last = self.last or {"verdict": "unknown", "error": "there was no rush"}
        return sentence(last), EXIT_CODES[last["verdict"]]

    def _conclude(self, rush: Rush, *, stopped: bool = False) -> bool:
        """Judge a rush, once, and keep the result. Returns whether this call did; another one that
        is at it is waited for."""
        with self._judging:
            if rush.is_judged:
                return False
            rush.is_judged, rush.stopped = True, stopped
            self.last = self._written(rush, self._judged(rush))
            logger.info("%s", sentence(self.last))
            return True

    def _judged(self, rush: Rush) -> dict[str, Any]:
        """The result of a rush; `unknown` where it could not be judged. Nobody asks any more: who
        has not sent a report does so now."""
        missing = [one for one in rush.members.values() if one.pid and not one.reported]
        try:
            for member in missing:
                self.runner.send_message(messages.END, {"rush": rush.id}, member.id)
            self._wait(
                lambda: all(one.reported or self._is_lost(one) for one in missing), COLLECT_TIMEOUT
            )
            return rush.result()
        except ShopUnreachable as error:
            logger.error("%s", error)
            return rush.failed(str(error))
        except Exception as error:  # any: if this ended here, the run would never end
            logger.exception("the rush was not judged")
            return rush.failed(f"the rush was not judged: {error!r}")

    def _written(self, rush: Rush, result: dict[str, Any]) -> dict[str, Any]:
        """The result, once it and the history are in their files. A run without them is no
        evidence."""

        def record(path: str) -> None:
            with History(path) as history:
                for event in rush.events():
                    history.record(**event)

        def dump(path: str) -> None:
            Path(path).write_text(json.dumps(result))

        for option, write in (("history", record), ("result", dump)):
            try:
                if path := getattr(self.options, option):
                    write(path)
            except OSError as error:
                message = f"--{option} cannot be written ({error}): name a file that can be"
                logger.error("%s", message)
                result = {**result, "verdict": "unknown", "error": message}
        return result
