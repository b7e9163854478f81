"""The rushes of a Locust process: in each, many buyers send their purchases at the same instant.

The process may open the sales, run buyers, or both. The coordinator is the process that opens the
sales: Locust's master or, without workers, its only process.
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
from gevent.event import Event
from gevent.lock import RLock
from locust.env import Environment
from locust.exception import RPCError
from locust.runners import MasterRunner, WorkerRunner

from loadtest.judge.verdict import EXIT_CODES
from loadtest.rush import messages
from loadtest.rush.local_buyers import LocalBuyers, wait_forever
from loadtest.rush.locust.locust_options import build_plan, load_target, require_permissions
from loadtest.rush.locust.locust_private import FixedDispatcher, list_worker_ids_in_dispatch_order
from loadtest.rush.messages import logger
from loadtest.rush.plan import RushPlan
from loadtest.rush.rush import LOCAL_PROCESS_ID, POLL_INTERVAL_SECONDS, Rush
from loadtest.rush.verdict_text import describe_run
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.node import StackError
from loadtest.stack.open_files import raise_file_limit
from loadtest.target.target import Target, TargetError
from servers.loopback import exempt_loopback_from_proxies

#: The error of a Locust run without a rush.
NO_RUSH = "there was no rush"


class LocustRushes:
    """The rushes of one Locust process, one after the other.

    opens_sales  whether this process is the coordinator; False before set_up()
    plan         the plan of the next rush; if it is None, the plan is built from Locust's options
    token        the value of --restock-token, which is removed from Locust's options
    rush         the last rush whose sale this process opened
    last_run     the run (figures and verdict) of the last concluded rush, or its BuyersReport as
                 JSON if the plan's `judge` is False; empty before the first rush
    buyers       this process's buyers in the last rush in which it had buyers
    """

    environment: Environment
    runner: Any
    options: Any
    opens_sales = False
    plan: RushPlan | None = None
    token = ""
    rush: Rush | None = None
    buyers: LocalBuyers | None = None

    def __init__(self) -> None:
        self.last_run: dict[str, Any] = {}
        self._set_up_done = Event()
        self._prepare_lock = RLock()
        self._conclude_lock = RLock()
        #: Ends Locust's run after a rush; otherwise the run would never end. locust_child.py, which
        #: uses Locust as a library, sets another function.
        self.end_run: Callable[[], object] = self._end_run_of_plain_locust

    def set_up(self, environment: Any) -> None:
        """Prepare this Locust process, so that each of its runs is a rush.

        Ends the process with exit code 2 if the target is unusable.
        """
        exempt_loopback_from_proxies()
        self.environment = environment
        self.runner = environment.runner
        options = environment.parsed_options
        self.options = options
        self.token = options.restock_token
        options.restock_token = ""  # Locust sends all options to its workers; they need no token
        # The announcement of a rush is also an option, `rush`, because Locust sends its options to
        # the workers. A worker may have received one before this call.
        vars(options).setdefault("rush", None)
        for kind in messages.KINDS:
            self.runner.register_message(kind, self._handle_message)
        if isinstance(self.runner, WorkerRunner):
            environment.process_exit_code = 0  # only the master's exit code shows the verdict
        else:
            self._require_usable_target()
            environment.dispatcher_class = FixedDispatcher
            self.opens_sales = True
            gc.freeze()  # so that no garbage collection scans the modules loaded so far
        self._set_up_done.set()

    def _require_usable_target(self) -> None:
        """Exit with code 2 if the file of --target is wrong, or a rush on its host is forbidden."""
        try:
            plan = build_plan(self.environment)
            load_target(plan)
            for warning in require_permissions(plan):
                logger.warning("%s", warning)
        except TargetError as error:
            logger.error("%s", error)
            sys.exit(2)

    def _handle_message(self, msg: Any, **_: Any) -> None:
        """Pass a message to the buyers and to the rush, unless the message is of another rush."""
        for listener in (self.buyers, self.rush):
            if listener is not None and listener.id == msg.data["rush"]:
                listener.handle_message(msg)

    # --- the buyers of this process -------------------------------------------------------------

    def get_buyers(self) -> LocalBuyers:
        """Return this process's buyers in the present rush. The first call prepares them.

        Waits forever if this process has no buyers, because a user that returned would be replaced.
        """
        self._set_up_done.wait()  # in a worker, users may start before set_up() is done
        with self._prepare_lock:
            announcement = self.options.rush
            prepared_rush_id = self.buyers.id if self.buyers is not None else ""
            if announcement is not None and announcement["rush"] != prepared_rush_id:
                self._prepare_buyers(announcement)
        return self.buyers or wait_forever()

    def _prepare_buyers(self, announcement: dict[str, Any]) -> None:
        """Prepare the buyers of this process for an announced rush.

        Waits forever if the process has no buyers in the rush, or if they cannot be prepared.
        """
        # Rush.open() describes the announcement. A share is the arguments of a range().
        shares = announcement["shares"]
        share = shares.get(self.runner.client_id) or shares.get(LOCAL_PROCESS_ID)
        if share is None:  # Locust may send users to a process that has no share of the buyers
            wait_forever()

        def send_message(kind: str, **content: Any) -> None:
            # If the master has ended, the message is useless, and Locust ends this process soon.
            with suppress(RPCError):
                self.runner.send_message(kind, {"rush": announcement["rush"], **content})

        plan = RushPlan(**announcement["plan"])
        buyer_numbers = range(*share)
        try:
            target = self._load_target_of_buyers(plan, announcement["state"])
            raise_file_limit(
                len(buyer_numbers),
                process=f"Locust with {len(buyer_numbers)} buyers in a process",
                advice="use more processes",
            )
        except (ShopUnreachable, StackError) as error:
            send_message(messages.FAILED, error=messages.make_sendable(str(error)))
            wait_forever()
        self.buyers = LocalBuyers(
            id=announcement["rush"],
            plan=plan,
            numbers=buyer_numbers,
            target=target,
            send_message=send_message,
            seconds_ahead=messages.measure_seconds_ahead(announcement["clock"]),
        )
        send_message(messages.PREPARED, pid=os.getpid())

    def _load_target_of_buyers(self, plan: RushPlan, state: dict[str, Any]) -> Target:
        """Return the target, with the attributes that its open() has set in the coordinator.

        state  these attributes, which the coordinator has sent
        """
        if self.rush is not None:  # this process opened the sale itself
            return self.rush.target
        target = load_target(plan)
        vars(target).update(state)
        return target

    # --- the rush, in the coordinator -----------------------------------------------------------

    def begin_rush(self) -> None:
        """Open a sale, announce the rush to the processes with buyers, and let it run.

        Do nothing in a worker. If the sale cannot be opened, no exception is raised. The rush is
        recorded as failed and run like any other, so that Locust's run ends.
        """
        if not self.opens_sales:
            return
        plan = self.plan or build_plan(self.environment, self.token)
        rush = Rush(
            plan=plan,
            target=Target(plan.hosts[0]),  # a placeholder until load_target() has succeeded
            runner=self.runner,
            workers=list_worker_ids_in_dispatch_order(self.runner),
        )
        self.rush = rush
        self.options.rush = None
        try:
            rush.target = load_target(plan)
            require_permissions(plan)
            self.options.rush = rush.open()  # Locust sends its options to the workers
        except ShopUnreachable as error:
            rush.failure = str(error)
        except Exception as error:  # if this raised, Locust's run would never end
            _record_failure(rush, error)
        gevent.spawn(self._run_to_end, rush)

    def _run_to_end(self, rush: Rush) -> None:
        """Release the buyers, wait for the end of the rush, conclude it, and end Locust's run.

        A rush that was stopped has been concluded already, and Locust ends its run itself.
        """
        try:
            rush.release_and_wait()
        except Exception as error:
            # Any error is caught here. If it ended this greenlet, Locust's run would never end.
            _record_failure(rush, error)
        if self._conclude(rush):
            self.end_run()

    def _end_run_of_plain_locust(self) -> None:
        """End Locust's run: the whole process if Locust is headless, else only the users."""
        while isinstance(self.runner, MasterRunner) and not self.runner.spawning_completed:
            # If a master is stopped while it is starting users, it goes on starting them.
            gevent.sleep(POLL_INTERVAL_SECONDS)
        if self.options.headless:
            self.runner.quit()
        else:
            self.runner.stop()

    def describe_progress(self) -> dict[str, Any] | None:
        """Return the progress of the present rush; None if no rush is in progress.

        `left_s` is the time in seconds until the buyers give up; None before their release.

        If workers run the buyers, this process does not know how far each buyer is. A worker sends
        one message when all its buyers have arrived, and its report when all of them have their
        answers. So `arrived` and `answered` rise by all buyers of a worker at once.
        """
        rush = self.rush
        if rush is None or rush.is_concluded:
            return None
        if self.buyers is not None and self.buyers.id == rush.id:
            arrived = self.buyers.arrived
            buyers_answered = self.buyers.finished
        else:
            arrived = sum(
                len(process.buyers) for process in rush.processes.values() if process.has_arrived
            )
            # A process sends its report when all its buyers are answered. `rush.arrived` is the sum
            # of their numbers in the reports so far.
            buyers_answered = rush.arrived
        seconds_left = rush.released_at + rush.plan.deadline - time.monotonic()
        return {
            "sale": rush.target.sale,
            "lock": rush.target.name,
            "buyers": rush.plan.buyers,
            "arrived": arrived,
            "answered": buyers_answered,
            "left_s": round(max(0.0, seconds_left), 1) if rush.released_at else None,
        }

    # --- the end of the rush --------------------------------------------------------------------

    def conclude_stopped_rush(self) -> None:
        """Conclude a rush that was stopped early, by a button, a signal or --run-time."""
        if self.rush is not None:
            self._conclude(self.rush, stopped=True)

    def conclude_last_rush(self) -> tuple[str, int]:
        """Conclude the last rush, and return the text of its verdict and the exit code.

        In a worker, which has no verdict, return "" and 0.
        """
        if not self.opens_sales:
            return "", 0
        self.conclude_stopped_rush()
        run = self.last_run or {"verdict": "unknown", "error": NO_RUSH}
        return describe_run(run), EXIT_CODES[run["verdict"]]

    def reread_orders(self) -> dict[str, Any]:
        """Read the orders and the stock of the last rush again.

        Return the fields that Rush.reread_orders() describes, or an `error`.
        """
        if self.rush is None:
            return {"error": NO_RUSH}
        try:
            return self.rush.reread_orders()
        except ShopUnreachable as error:
            return {"error": str(error)}

    def _conclude(self, rush: Rush, *, stopped: bool = False) -> bool:
        """Conclude a rush, and store its run in `last_run`.

        Return False if the rush was concluded before. If another greenlet is concluding the rush,
        wait for that greenlet first.
        """
        with self._conclude_lock:
            if rush.is_concluded:
                return False
            rush.is_concluded = True
            rush.stopped = stopped
            self.last_run = self._write_files(rush, rush.conclude())
            if rush.plan.judge:
                logger.info("%s", describe_run(self.last_run))
            return True

    def _write_files(self, rush: Rush, run: dict[str, Any]) -> dict[str, Any]:
        """Write the plan's `history` and `result` files, and return the run.

        If a file cannot be written, the returned run has the verdict `unknown`, because the
        evidence is incomplete.
        """

        def write_result(path: str) -> None:
            Path(path).write_text(json.dumps(run))

        files = (
            ("history", rush.plan.history, rush.make_report().append_to),
            ("result", rush.plan.result, write_result),
        )
        for option, path, write in files:
            if not path:
                continue
            try:
                write(path)
            except OSError as error:
                message = f"--{option} cannot be written ({error}): give another file"
                logger.error("%s", message)
                run = {**run, "verdict": "unknown", "error": message}
        return run


def _record_failure(rush: Rush, error: Exception) -> None:
    """Record an unexpected error as the failure of the rush, and log it."""
    logger.exception("the rush failed")
    rush.failure = rush.failure or f"the rush failed: {error!r}"
