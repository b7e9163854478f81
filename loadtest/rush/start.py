"""The rushes of one Locust, which opens sales, has buyers, or does both."""

import gc
import os
import sys
import time
from contextlib import suppress
from typing import Any

import gevent
import locust.runners
from gevent.event import Event
from gevent.lock import RLock
from locust.exception import RPCError
from locust.runners import WorkerRunner

from loadtest.judge.verdict import EXIT_CODES
from loadtest.rush import messages
from loadtest.rush.bounds import allow
from loadtest.rush.conductor import LOCAL, Conductor
from loadtest.rush.crowd import Crowd, stay
from loadtest.rush.messages import logger
from loadtest.rush.options import add_arguments, hosts, permissions, target_of
from loadtest.rush.rush import sentence
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.node import StackError
from loadtest.target.errors import TargetError
from servers.loopback import ask_loopback_directly

__all__ = ["Rushes", "add_arguments"]

#: Seconds without a heartbeat after which Locust takes a worker for lost. Its 3 are too few where
#: thousands of buyers begin at once. A worker keeps the limit that held when it connected.
locust.runners.HEARTBEAT_LIVENESS = 20


class Rushes:
    """The rushes of one Locust, one after the other.

    conductor  opens the sales; None in a worker
    crowd      the buyers of this process in the last rush that it had buyers in
    """

    conductor: Conductor | None = None
    crowd: Crowd | None = None

    def __init__(self) -> None:
        self.is_set_up = Event()
        self._one_at_a_time = RLock()

    def set_up(self, environment: Any) -> None:
        """Ends the process with 2 where the target cannot be used."""
        ask_loopback_directly()
        self.environment = environment
        self.runner = environment.runner
        options = self.environment.parsed_options
        token, options.restock_token = options.restock_token, ""  # Locust sends options to workers
        vars(options).setdefault("rush", None)
        for kind in (messages.GO, messages.END):
            self.runner.register_message(kind, self._listen)
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
            self.conductor = Conductor(environment, token)
            gc.freeze()  # no collection walks through what is loaded, in a rush or at the end
        self.is_set_up.set()

    def join(self) -> Crowd:
        """The present rush, for a buyer of this process."""
        self.is_set_up.wait()  # a worker may have users before that
        with self._one_at_a_time:
            told = self.environment.parsed_options.rush
            if told and (self.crowd is None or self.crowd.id != told["rush"]):
                self._gather(told)
        return self.crowd or stay()

    def _gather(self, told: dict[str, Any]) -> None:
        """Begin a rush, as the conductor has announced it."""
        share = told["shares"].get(self.runner.client_id) or told["shares"].get(LOCAL)
        if share is None:  # Locust has sent users nevertheless
            stay()
        numbers = range(*share)
        try:
            if self.conductor is not None and self.conductor.rush is not None:
                target = self.conductor.rush.target
            else:
                target = target_of(self.environment)
                vars(target).update(told["state"])
            allow(len(numbers), what=f"Locust with {len(numbers)} buyers in a process",
                  otherwise="take more processes")  # fmt: skip
        except (ShopUnreachable, StackError) as error:
            self._say(messages.BROKEN, rush=told["rush"], error=str(error))
            stay()
        self.crowd = Crowd(told, numbers, target, hosts(self.environment), self._say)
        self._say(messages.HERE, pid=os.getpid())

    def _say(self, kind: str, **data: Any) -> None:
        """Send a message about the present rush to the process that opened the sale."""
        of = {} if self.crowd is None else {"rush": self.crowd.id}
        with suppress(RPCError):  # the master is gone: Locust ends this process after a minute
            self.runner.send_message(kind, {**of, **data})

    def _listen(self, msg: Any, **_: Any) -> None:
        """Messages of another rush are ignored."""
        if self.crowd is None or self.crowd.id != msg.data["rush"]:
            return
        if msg.type == messages.GO:
            gevent.spawn(self.crowd.release, msg.data["at"])
        else:
            self.crowd.close()

    def begin(self) -> None:
        """Open the sale of a rush."""
        if self.conductor is not None:
            self.conductor.begin()

    def end(self) -> None:
        """Judge a rush that is stopped in its middle, by a button, a signal or --run-time."""
        if self.conductor is not None:
            self.conductor.conclude(self.conductor.rush, stopped=True)

    def verdict(self) -> tuple[str, int]:
        """The result of the last rush, and the exit code; nothing of a worker."""
        if self.conductor is None:
            return "", 0
        self.end()
        last = self.conductor.last or {"verdict": "unknown", "error": "there was no rush"}
        return sentence(last), EXIT_CODES[last["verdict"]]

    def progress(self) -> dict[str, Any] | None:
        """How far the present rush is; `left_s`: seconds until its buyers give up, None before
        their release. Of several processes only reports are known."""
        assert self.conductor is not None
        rush = self.conductor.rush
        if rush is None or rush.is_judged:
            return None
        left = rush.released_at + rush.deadline_s - time.monotonic()
        members = self.conductor.members.values()
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
