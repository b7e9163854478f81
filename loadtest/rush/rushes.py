"""The rushes of one Locust: this process opens their sales, has their buyers, or does both.

The process that opens the sales is the only one, or the master.
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
from locust.runners import MasterRunner, WorkerNode, WorkerRunner

from loadtest.judge.history import History
from loadtest.judge.verdict import EXIT_CODES
from loadtest.rush import messages
from loadtest.rush.bounds import allow
from loadtest.rush.crowd import Crowd, stay
from loadtest.rush.figures import sentence
from loadtest.rush.messages import logger
from loadtest.rush.options import hosts, permissions, target_of
from loadtest.rush.rush import LOCAL, LOOK_EVERY, Rush
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.node import StackError
from loadtest.target.target import Target, TargetError
from servers.loopback import ask_loopback_directly

#: Seconds without a heartbeat after which Locust takes a worker for lost. Its 3 are too few where
#: thousands of buyers begin at once. A worker keeps the limit that held when it connected.
locust.runners.HEARTBEAT_LIVENESS = 20


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
        self.is_set_up = Event()
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
        for kind in messages.KINDS:
            self.runner.register_message(kind, self._hear)
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
            self.opens_sales = True
            gc.freeze()  # no collection walks through what is loaded, in a rush or at the end
        self.is_set_up.set()

    def _hear(self, msg: Any, **_: Any) -> None:
        """Messages of another rush are ignored."""
        for one in (self.crowd, self.rush):
            if one is not None and one.id == msg.data["rush"]:
                one.hear(msg)

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

    # --- the rush, where its sale is opened -----------------------------------------------------

    def begin(self) -> None:
        """Open a sale, announce it to the processes with buyers, and watch the rush."""
        if not self.opens_sales:
            return
        options, has_workers = self.options, isinstance(self.runner, MasterRunner)
        # Locust's workers get its users in this order.
        nodes = self.runner._users_dispatcher._worker_nodes if has_workers else ()
        rush = self.rush = Rush(
            target=Target(self.environment.host or ""),
            buyers=int(options.num_users or 1),
            stock=int(options.stock),
            deadline_s=float(options.deadline),
            runner=self.runner,
            workers=[node.id for node in nodes],
        )
        options.rush = None
        try:
            rush.target = target_of(self.environment, self.token)
            permissions(self.environment, rush.buyers)
            options.rush = rush.open()  # which Locust sends to each worker with its users
        except ShopUnreachable as error:
            rush.broken = error
        gevent.spawn(self._watch, rush)

    def _watch(self, rush: Rush) -> None:
        """End the run when all buyers have their answers: Locust itself would not."""
        rush.watch()
        if self._conclude(rush):
            self.end_the_run()

    def _end_the_run(self) -> None:
        while isinstance(self.runner, MasterRunner) and not self.runner.spawning_completed:
            gevent.sleep(LOOK_EVERY)  # its start would go on after the stop
        self.runner.quit() if self.options.headless else self.runner.stop()

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
            self.last = self._written(rush, rush.judged())
            logger.info("%s", sentence(self.last))
            return True

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
