"""The rushes of one Locust, in the process that opens their sales: the only one, or the master.

It announces a rush to the processes that have the buyers, lets everybody go when the last buyer is
at the barrier, and takes one report of each process. A rush that lost a process is never exact.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from locust.env import Environment
from locust.runners import MasterRunner

from loadtest.judge.verdict import EXIT_CODES
from loadtest.rush import messages
from loadtest.rush.members import LOOK_EVERY, Members
from loadtest.rush.messages import logger
from loadtest.rush.options import permissions, target_of
from loadtest.rush.rush import Rush
from loadtest.stack.client import ShopUnreachable
from loadtest.target.target import Target

#: Seconds from the message to the moment of the release: the message has to be there by then.
LEAD = 0.05
#: Seconds for all processes to report the requests that were never answered.
COLLECT_TIMEOUT = 5.0


class Conductor:
    """Opens a sale for each rush, watches it, and keeps its result.

    token  the shop's SHOP_RESTOCK_TOKEN
    last   the result of the last rush, empty before the first one
    """

    rush: Rush | None = None

    def __init__(self, environment: Environment, token: str) -> None:
        self.environment = environment
        self.options: Any = environment.parsed_options
        self.token = token
        self.has_workers = isinstance(environment.runner, MasterRunner)
        self.members = Members(environment)
        self.last: dict[str, Any] = {}
        #: Ends a run that would go on forever.
        self.end_the_run: Callable[[], object] = self._end_the_run

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
        try:
            rush.target = target_of(self.environment, self.token)
            permissions(self.environment, rush.buyers)
            before = dict(vars(rush.target))
            rush.count.open(rush.stock)
            options.rush = {
                "rush": rush.id,
                "buyers": rush.buyers,
                "deadline_s": rush.deadline_s,
                "state": messages.state(rush.target, before) if self.has_workers else {},
                "shares": self.members.expect(rush),
            }
        except ShopUnreachable as error:
            rush.break_off(error)
        gevent.spawn(self._watch, rush)

    def _watch(self, rush: Rush) -> None:
        """Release the buyers when all are there, end the run when all have their answers. Locust
        itself would not end it."""
        members = self.members
        if not rush.over:
            members.wait(lambda: all(one.arrived for one in members), rush.arrival_timeout)
        if not rush.over:
            lead = max(LEAD, 4 * max(one.error for one in members)) if self.has_workers else 0.0
            rush.released_at = time.monotonic() + lead
            members.release(rush.released_at)
            members.wait(lambda: all(one.reported for one in members), rush.deadline_s + 60)
        if self.conclude(rush):
            self.end_the_run()

    def _end_the_run(self) -> None:
        runner: Any = self.environment.runner
        while isinstance(runner, MasterRunner) and not runner.spawning_completed:
            gevent.sleep(LOOK_EVERY)  # its start would go on after the stop
        runner.quit() if self.options.headless else runner.stop()

    def conclude(self, rush: Rush | None, *, stopped: bool = False) -> bool:
        """Judge a rush, once, and keep the result. Returns whether this call did; another one that
        is at it is waited for."""
        if rush is None:
            return False
        if rush.is_judged:
            while not rush.has_result:
                gevent.sleep(0.02)
            return False
        rush.is_judged = True
        rush.stopped = stopped
        try:
            self._collect(rush)
            result = rush.result()
            if self.has_workers:
                result["locust_workers"] = [
                    {"worker": one.first, "on": one.machine, "buyers": one.count, **one.figures}
                    for one in self.members
                ]
        except ShopUnreachable as error:
            logger.error("%s", error)
            result = rush.failed(str(error))
        except Exception as error:  # any: if this ended here, the run would never end
            logger.exception("the rush was not judged")
            result = rush.failed(f"the rush was not judged: {error!r}")
        self.last = self._written(rush, result)
        rush.has_result = True
        logger.info("%s", sentence(self.last))
        return True

    def _collect(self, rush: Rush) -> None:
        """Take the report of those who have not sent one: nobody asks any more."""
        if self.members.rush is not rush:
            return  # it was never announced
        missing = self.members.end()
        deadline = time.monotonic() + COLLECT_TIMEOUT
        while time.monotonic() < deadline:
            if all(one.reported or self.members.is_lost(one) for one in missing):
                return
            self.members.listen()

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

    def exit_code(self) -> int:
        """That of the last verdict; `unknown` until there is one."""
        return EXIT_CODES[self.last.get("verdict", "unknown")]


def sentence(result: dict[str, Any]) -> str:
    """The result of a rush, in a line or a few."""
    said = (
        f"{result['verdict'].upper()} [{result.get('lock')}]: {result.get('orders')} orders for "
        f"{result.get('initial_stock')} units, {result.get('stock_left')} left on the shelf"
    )
    more = [f"not judged: {what}" for what in result.get("not_judged", ())]
    reasons = [result.get("why"), *result.get("findings", ()), result.get("error")]
    return "\n".join([said, *more, *dict.fromkeys(str(one) for one in reasons if one)])
