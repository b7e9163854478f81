"""One rush, in its coordinator: the process that opens the sale.

In a rush many buyers send their purchases at the same instant. The coordinator announces the rush
to the processes that run the buyers. Each buyer waits at the barrier, just before its first request
is sent. The coordinator releases the buyers when all of them have arrived there, or after a time
limit. When its buyers have their answers, each process sends one report. The coordinator then
judges the rush, unless the plan's `judge` is False. If a process ends before its report, the
verdict on the rush is never `exact`.
"""

import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import psutil
from gevent import event

from loadtest.judge.intervals import Request
from loadtest.rush import messages
from loadtest.rush.buyers_report import BuyersReport
from loadtest.rush.judge_rush import judge_rush, mark_incomplete_as_unknown
from loadtest.rush.messages import logger
from loadtest.rush.plan import RushPlan
from loadtest.stack.client import ShopUnreachable
from loadtest.target.judging_scope import describe_judging_scope
from loadtest.target.order_matching import (
    count_matched_by_number,
    describe_unmatched_numbers,
    match_orders_to_buyers,
)
from loadtest.target.sale_counter import (
    OrdersOrTotal,
    SaleCounter,
    count_orders,
    describe_changes,
)
from loadtest.target.target import Target

#: The id of the only process if Locust has no workers.
LOCAL_PROCESS_ID = "local"
#: The name of a violation: orders from before the rush are gone, or have another buyer now.
CHANGED_EARLIER_ORDERS = "changed_before"
#: The coordinator sends the release message this long before the release, so that the message
#: reaches every worker in time.
RELEASE_LEAD_SECONDS = 0.05
POLL_INTERVAL_SECONDS = 0.2
#: How long to wait for reports after the rush was ended early.
REPORT_TIMEOUT_SECONDS = 5.0
#: How long to wait for answers after the buyers' deadline.
ANSWER_GRACE_SECONDS = 60.0
#: The time limit for the buyers' arrival at the barrier allows a rate as low as this.
MIN_ARRIVALS_PER_SECOND = 20


@dataclass
class BuyerProcess:
    """A process that runs buyers of the rush.

    id            Locust's id of the process: the machine's name and a random part. If Locust has
                  only one process, the id is LOCAL_PROCESS_ID
    buyers        the numbers of its buyers
    pid           its process id; 0 until it has reported that it has prepared its buyers
    has_arrived   whether all its buyers are at the barrier
    has_reported  whether it has sent its report
    """

    id: str
    buyers: range
    pid: int = 0
    has_arrived: bool = False
    has_reported: bool = False

    @property
    def machine(self) -> str:
        """The name of the worker's machine."""
        return self.id.rpartition("_")[0]

    @property
    def worker_number(self) -> int:
        """The number of the worker in log and error messages: 0, 1, 2, ..."""
        # The first buyer of worker n is buyer n; see Rush.__post_init__().
        return self.buyers.start

    def has_ended(self) -> bool:
        """Return whether a worker has ended; False if it is on another machine."""
        if not self.pid or self.machine != socket.gethostname():
            return False
        try:
            # A zombie has ended, but its parent has not read its exit code yet.
            return psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


@dataclass
class Rush:
    """One rush: its sale, the processes with its buyers, and their requests.

    runner         Locust's runner
    workers        Locust's ids of the worker processes; empty if this process runs the buyers
    id             a unique text, with which the Idempotency-Keys of the buyers begin
    arrived        how many buyers reached the barrier, according to the reports so far
    released_at    the monotonic time at which the buyers may buy; 0 before the release
    requests       the requests of the buyers, from the reports so far
    stopped        whether the rush was stopped before every buyer had an answer
    failure        a sentence on why there is no verdict, otherwise empty. The shop did not answer,
                   the target's file has an error, or a process ended before the release
    lost           a sentence for each process that ended after the release without a report
    is_concluded   whether conclude() has been called
    judged_orders  the orders that were read from the shop to judge the rush
    judged_stock   the stock that was read from the shop to judge the rush; None if it shows none
    """

    plan: RushPlan
    target: Target
    runner: Any = None
    workers: Sequence[str] = ()
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    arrived: int = 0
    released_at: float = 0.0
    requests: list[Request] = field(default_factory=list)
    stopped: bool = False
    failure: str = ""
    lost: list[str] = field(default_factory=list)
    is_concluded: bool = False
    judged_orders: OrdersOrTotal = 0
    judged_stock: int | None = None

    def __post_init__(self) -> None:
        # Buyers are dealt to the processes in turn: with 3 processes, the first gets the buyers
        # 0, 3, 6, ... If there are more workers than buyers, the last workers get none.
        ids = (self.workers or [LOCAL_PROCESS_ID])[: self.plan.buyers]
        self.processes = {
            id: BuyerProcess(id, range(first, self.plan.buyers, len(ids)))
            for first, id in enumerate(ids)
        }
        self._message_received = event.Event()

    @cached_property
    def sale_counter(self) -> SaleCounter:
        """The object that counts the orders and the stock of this sale."""
        names = [f"buyer-{number}" for number in range(self.plan.buyers)]
        return SaleCounter(self.target, {name: f"{self.id}/{name}" for name in names})

    def open(self) -> dict[str, Any]:
        """Open the sale, and return the announcement of the rush. Raises ShopUnreachable.

        The announcement has these fields:

        rush    the id of the rush
        plan    the fields of the RushPlan, without its token
        clock   the offset of this machine's clock, see messages.measure_clock_offset()
        state   the attributes of the target after open(), for the workers' targets
        shares  id of each process -> the start, stop and step of the range of its buyers' numbers
        """
        attributes_before = dict(vars(self.target))
        self.sale_counter.open(self.plan.stock)
        state = {}
        if self.workers:
            state = messages.pick_sendable_state(self.target, attributes_before)
        shares = {}
        for id, process in self.processes.items():
            shares[id] = (process.buyers.start, process.buyers.stop, process.buyers.step)
        return {
            "rush": self.id,
            "plan": asdict(replace(self.plan, restock_token="")),
            "clock": messages.measure_clock_offset(),
            "state": state,
            "shares": shares,
        }

    def release_and_wait(self) -> None:
        """Release the buyers when all have arrived, and wait until all processes have reported.

        If not all buyers arrive in time, only those who have arrived are released. The reports have
        a time limit, too. Returns early if the rush has failed, lost a process or was concluded.
        """
        arrival_timeout = self.plan.buyers / MIN_ARRIVALS_PER_SECOND + self.target.prepare_s
        self._wait_for_processes(lambda process: process.has_arrived, arrival_timeout)
        if self.is_over:
            return
        lead_seconds = RELEASE_LEAD_SECONDS if self.workers else 0.0
        self.released_at = time.monotonic() + lead_seconds
        message = {"rush": self.id, "at": self.released_at}
        for process in self.processes.values():
            self.runner.send_message(messages.RELEASE, message, process.id)
        self._wait_for_processes(
            lambda process: process.has_reported, self.plan.deadline + ANSWER_GRACE_SECONDS
        )

    @property
    def is_over(self) -> bool:
        """True if there is nothing to wait for: concluded, failed, or a process was lost."""
        return bool(self.failure or self.lost or self.is_concluded)

    def _wait_for_processes(self, is_done: Callable[[BuyerProcess], bool], timeout: float) -> None:
        """Wait until is_done() holds for every process, or the rush is over.

        A process that has ended without a report is recorded as lost, which ends the rush.

        timeout  the longest wait, in seconds
        """

        def is_wait_over() -> bool:
            if self.is_over or all(map(is_done, self.processes.values())):
                return True
            for process in self.processes.values():
                if not process.has_reported and self._is_lost(process):
                    self.record_lost_process(process)
            return self.is_over

        self._wait_until(is_wait_over, timeout)

    def _wait_until(self, condition: Callable[[], bool], timeout: float) -> None:
        """Wait until condition() holds, or `timeout` seconds have passed.

        The condition is checked after every message, and every POLL_INTERVAL_SECONDS.
        """
        deadline = time.monotonic() + timeout
        while not condition() and time.monotonic() < deadline:
            self._message_received.clear()
            self._message_received.wait(POLL_INTERVAL_SECONDS)

    def _is_lost(self, process: BuyerProcess) -> bool:
        """Return whether a worker has ended, or Locust has missed its heartbeats.

        Without workers this process runs all buyers. It cannot be lost, so False is returned.
        """
        if process.id == LOCAL_PROCESS_ID:
            return False
        clients = self.runner.clients
        client = clients.get(process.id)
        return client is None or client in clients.missing or process.has_ended()

    def record_lost_process(self, process: BuyerProcess) -> None:
        """Record that a process has ended without a report.

        If it ended before the release, the rush has failed. If it ended later, the rush can still
        be judged, but without the requests and answers of this process's buyers.
        """
        worker = f"worker {process.worker_number} on {process.machine}"
        lost_buyers = len(process.buyers)
        if self.released_at:
            self.lost.append(
                f"{worker} has ended, so the answers to {lost_buyers} of {self.plan.buyers} buyers "
                "are lost"
            )
            return
        self.failure = self.failure or (
            f"{worker} has ended, with {lost_buyers} of {self.plan.buyers} buyers, before the "
            "buyers were released. The worker's log says why; start the worker and the rush again"
        )

    def handle_message(self, message: Any) -> None:
        """Handle a message of a process with buyers. Messages of other processes are ignored."""
        process = self.processes.get(message.node_id)
        if process is None:
            return
        content = message.data
        match message.type:
            case messages.PREPARED:
                process.pid = content["pid"]
            case messages.ARRIVED:
                process.has_arrived = True
            case messages.REPORT:
                process.has_reported = True
                self.arrived += content["arrived"]
                self.requests += [Request(*fields) for fields in content["requests"]]
                logger.info("worker %d has reported", process.worker_number)
            case messages.FAILED:
                self.failure = self.failure or content["error"]
        self._message_received.set()

    # --- the end of the rush --------------------------------------------------------------------

    def conclude(self) -> dict[str, Any]:
        """Collect the missing reports, and judge the rush.

        Return its run: the figures and the verdict, as in `summary.json`. If the rush could not be
        judged, the verdict is `unknown`, and the run has an `error`. If the plan's `judge` is
        False, return the fields of the BuyersReport instead.
        """
        try:
            self._collect_reports()
            if not self.failure:
                return self.judge() if self.plan.judge else self.make_report().as_json()
            reason = self.failure
            logger.error("%s", reason)
        except ShopUnreachable as error:
            reason = str(error)
            logger.error("%s", reason)
        except Exception as error:  # if this raised, Locust's run would never end
            logger.exception("the rush was not judged")
            reason = f"the rush was not judged: {error!r}"
        sale = {"lock": self.target.name, "sale": self.target.sale}
        return {**sale, "verdict": "unknown", "error": reason}

    def _collect_reports(self) -> None:
        """End the rush in the processes that have not reported, and wait for their reports."""
        processes_without_report = [
            process
            for process in self.processes.values()
            # Without a pid the process has not prepared its buyers, so it sends no report.
            if process.pid and not process.has_reported
        ]
        for process in processes_without_report:
            self.runner.send_message(messages.END, {"rush": self.id}, process.id)
        self._wait_until(
            lambda: all(
                process.has_reported or self._is_lost(process)
                for process in processes_without_report
            ),
            REPORT_TIMEOUT_SECONDS,
        )

    def make_report(self) -> BuyersReport:
        """Return one report that combines the reports of all processes."""
        return BuyersReport(
            lock=self.target.name,
            product=self.target.product,
            sale=self.target.sale,
            rush_id=self.id,
            arrived=self.arrived,
            requests=self.requests,
            stopped=self.stopped,
            lost=self.lost,
        )

    def judge(self) -> dict[str, Any]:
        """Read the shop's orders and stock, and judge the rush by them.

        Return its run: the figures and the verdict, as in `summary.json`. If the rush was stopped
        or lost buyers, the verdict is `unknown`, unless it is `oversold`. Raises ShopUnreachable.
        """
        last_requests_by_attempt = {request.attempt: request for request in self.requests}
        sold_count = sum(request.outcome == "sold" for request in last_requests_by_attempt.values())
        unsettled_findings = self.sale_counter.wait_until_settled(sold_count)
        stock_left = self.sale_counter.stock()
        orders_or_total = self.sale_counter.orders()  # an int if the shop shows only their number
        self.judged_orders = orders_or_total
        self.judged_stock = stock_left
        orders = match_orders_to_buyers(self.sale_counter, orders_or_total, self.requests)
        report = self.make_report()
        opening_stock = self.sale_counter.opening_stock
        if opening_stock is None:  # the shop shows no stock
            opening_stock = self.plan.stock
        run = judge_rush(
            self.plan,
            report,
            events=report.events(),
            opening_stock=opening_stock,
            stock_left=stock_left,
            orders=orders,
            unsettled_promises=self.sale_counter.unsettled(),
            judging_scope=describe_judging_scope(
                repeatable=self.target.repeatable,
                lists_orders=not isinstance(orders_or_total, int),
                shows_stock=stock_left is not None,
                matched_by_number=count_matched_by_number(orders_or_total, orders),
            ),
        )
        if not self.target.is_own_shop:
            self._add_third_party_findings(run, orders, unsettled_findings)
        mark_incomplete_as_unknown(run)
        return run

    def _add_third_party_findings(
        self,
        run: dict[str, Any],
        orders: Sequence[Mapping[str, Any]],
        unsettled_findings: Sequence[str],
    ) -> None:
        """Add the findings that only the run of a third-party shop can have.

        These are sentences on orders that the shop did not write within `settles_s`, on different
        order numbers in answers and in orders(), and on changes of orders from before the rush.

        The verdict becomes `unknown` in three cases:

        - It was `undersold`, but the shop was still writing orders.
        - It was `exact`, but orders from before the rush have changed.
        - It was `oversold`, but the surplus orders may be changed orders from before the rush.

        unsettled_findings  the sentences that SaleCounter.wait_until_settled() returned
        """
        if run["verdict"] == "undersold" and self.sale_counter.was_still_writing:
            run |= {"verdict": "unknown", "why": unsettled_findings[0]}
        if "lost_ack" in run["violations"]:
            run["findings"] += describe_unmatched_numbers(orders, self.requests)
        if run["verdict"] not in {"exact", "oversold"}:
            run["findings"] += unsettled_findings
        if changed_orders := self.sale_counter.describe_changed_earlier_orders():
            run["violations"].append(CHANGED_EARLIER_ORDERS)
            run["findings"] += changed_orders
            surplus_may_be_earlier_orders = run["oversold"] <= self._count_possible_earlier_orders(
                orders
            )
            if run["verdict"] == "exact" or (
                run["verdict"] == "oversold" and surplus_may_be_earlier_orders
            ):
                run |= {"verdict": "unknown", "why": changed_orders[0], "oversold": 0}

    def _count_possible_earlier_orders(
        self, orders: OrdersOrTotal | Sequence[Mapping[str, Any]]
    ) -> int:
        """Return how many of these orders may be changed orders from before the rush.

        If the number or the buyer of an order from before the rush changes, the order looks new.
        But neither its buyer nor its number belongs to a buyer of the rush.
        """
        if isinstance(orders, int):
            return 0
        buyers = {request.attempt for request in self.requests}
        answered_numbers = {request.order for request in self.requests}
        unknown_count = sum(
            order["key"] not in buyers and order["order"] not in answered_numbers
            for order in orders
        )
        return min(unknown_count, self.sale_counter.count_changed_earlier_orders())

    def reread_orders(self) -> dict[str, Any]:
        """Read all orders of the sale and its stock again. Raises ShopUnreachable.

        The returned dict has these fields:

        orders   the number of orders now
        changes  a sentence on each difference from the orders and the stock that were judged
        possible_earlier_orders  the number of orders that may be from before the rush: they look
                 new, because their number or buyer has changed since
        """
        orders = self.sale_counter.orders()
        differences = describe_changes(self.judged_orders, orders)
        stock_left = self.sale_counter.stock()
        if stock_left != self.judged_stock:
            differences.append(f"stock() was {self.judged_stock}, and is {stock_left} now")
        return {
            "orders": count_orders(orders),
            "changes": differences,
            "possible_earlier_orders": self._count_possible_earlier_orders(orders),
        }
