"""The servers of the workshop, with two nodes of the shop that sell with the participant's file.

The shop uses the file as a strategy, a way to guard the stock, with the name `mine`. In a rush many
buyers buy at once.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import psycopg
import redis

from loadtest.faults.fault_buyer import FaultBuyer
from loadtest.faults.testbed import RIVALS_NODE, VICTIMS_NODE, Testbed
from loadtest.judge.history import Event, group_by_product
from loadtest.judge.verdict import Judgement
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import ROOT
from servers.waiting import wait_for
from workshop.checks.ended_check import CHECK_TIMEOUT_SECONDS, EndedCheck
from workshop.refusal import Refusal, Undecided

#: The name of the strategy that is read from the participant's file.
MINE = "mine"
#: The numbers of both nodes. In a rush each serves half of the buyers.
NODES = (VICTIMS_NODE, RIVALS_NODE)
#: Number of buyers in a rush: more than RUSH_STOCK, and few enough for a laptop.
RUSH_BUYERS = 40
#: Number of units in a rush.
RUSH_STOCK = 20
#: If no buyer gets its final answer for this long, a rush is stuck. If a server does not answer for
#: this long, the check is undecided.
SILENCE_TIMEOUT_SECONDS = 6.0
#: A node that does not answer for this long is restarted.
HUNG_NODE_TIMEOUT_SECONDS = 3.0
#: If a rush takes longer, the check is undecided, even if buyers still get answers.
RUSH_TIMEOUT_SECONDS = 60.0
POLL_INTERVAL_SECONDS = 0.02
#: The beginning of the shop's message for an unexpected error (shop/views.py).
CRASH_MESSAGE_START = "the shop failed"
#: The part of a query that selects the nodes' connections, by the application names that Testbed
#: sets.
FROM_NODE_CONNECTIONS = """
    FROM pg_stat_activity
    WHERE datname = current_database() AND application_name IN ('oversold-A', 'oversold-B')
"""
END_CONNECTIONS_QUERY = f"SELECT pid, pg_terminate_backend(pid) {FROM_NODE_CONNECTIONS}"
COUNT_CONNECTIONS_QUERY = f"SELECT count(*) {FROM_NODE_CONNECTIONS}"
#: Connections of a node to the database: one for each of its buyers, and four for other requests.
#: Several participants may share one PostgreSQL, so no node keeps more than it needs.
POOL_SIZE = RUSH_BUYERS // len(NODES) + 4


class Bench(Testbed):
    """The servers and nodes of the workshop, whose strategy `mine` is the participant's file."""

    def __init__(self, file: Path, **options: Any) -> None:
        """Prepare a bench. As a context manager it starts and stops the servers.

        file     the file that the strategy `mine` is read from
        options  options of Testbed, such as `log` and `progress`
        """
        # The lessons do not use the extra servers (Redlock's and ZooKeeper's).
        super().__init__(threads=RUSH_BUYERS, extras=False, **options)
        self.file = file
        self._rush_count = 0
        #: The process that forks a process for each check. The first check starts it.
        self._check_server: subprocess.Popen[str] | None = None
        #: The environment variables of all nodes; empty until the servers are started.
        self.environment: dict[str, str] = {}

    def _start_servers(self) -> dict[str, str]:
        settings = {"SHOP_DEMO_STRATEGIES": f"{MINE}={self.file}", "SHOP_DB_POOL": str(POOL_SIZE)}
        self.environment = super()._start_servers() | settings
        return self.environment

    def reset_servers(self) -> None:
        """Empty Redis, and replace the nodes' connections to PostgreSQL.

        The code of the previous check may have left a session lock, a setting or a temporary table
        on a connection, which would disturb the next check. Raises Undecided if a server or a node
        does not answer. Does not raise an error if the nodes replace their connections too slowly.
        """
        try:
            with redis.Redis(port=self.main_redis.port) as client:
                client.flushall()
                client.function_flush()
            # If no connection was ended, use the pid 0, because SQL does not allow an empty list.
            pids = ", ".join(str(pid) for pid, _ in self.run_sql(END_CONNECTIONS_QUERY)) or "0"
            select_remaining = f"SELECT pid FROM pg_stat_activity WHERE pid IN ({pids})"
            wait_for(lambda: not self.run_sql(select_remaining), SILENCE_TIMEOUT_SECONDS)
        except (redis.RedisError, psycopg.Error) as error:
            raise Undecided(f"a server does not answer: {error}") from error
        for number in NODES:
            self._reconnect(number)
        # Each node fills its connection pool in the background. Wait until the pools are full,
        # because filling them would slow down a rush.
        wait_for(
            lambda: self.run_sql(COUNT_CONNECTIONS_QUERY)[0][0] >= len(NODES) * POOL_SIZE,
            SILENCE_TIMEOUT_SECONDS,
        )

    def _reconnect(self, number: int) -> None:
        """Send a node requests until one succeeds, so that it replaces its ended connections.

        Raises Undecided if no request succeeds within SILENCE_TIMEOUT_SECONDS.
        """
        deadline = time.monotonic() + SILENCE_TIMEOUT_SECONDS
        while True:
            try:
                # Any request that needs the database. No rush sells this product.
                self.shop(number).restock(product="unused", stock=1)
                return
            except ShopUnreachable as error:
                if time.monotonic() > deadline:
                    raise Undecided(f"a node does not answer: {error}") from error

    def run_check(self, check: str) -> tuple[Refusal | None, str]:
        """Run a check of the participant's file in a new process that uses the bench's servers.

        Return the check's refusal, or None, and the output of the participant's code. Raises
        Undecided if the check could not decide, failed or took too long.

        check  the name of the check, such as `answers.tally` (workshop/checks/one_check.py)
        """
        ended_check = self._run_in_own_process(check)
        if ended_check.exit_code is None:
            raise Undecided(f"{check} took more than {CHECK_TIMEOUT_SECONDS:g} s here")
        return self._read_outcome(
            check, ended_check.exit_code, ended_check.stdout, ended_check.stderr
        )

    def _read_outcome(
        self, check: str, exit_code: int, stdout: str, stderr: str
    ) -> tuple[Refusal | None, str]:
        """Return a check's refusal, or None, and the output of the participant's code.

        Both are read from the output of the check's process. Raises Undecided if the check could
        not decide, or failed.
        """
        *output_lines, report_line = stdout.splitlines() or [""]
        with suppress(ValueError, TypeError, KeyError):  # if the last line is not a report
            report = json.loads(report_line)
            if "undecided" in report:
                raise Undecided(report["undecided"])
            refusal = report["refusal"]
            return (None if refusal is None else Refusal(**refusal)), "\n".join(output_lines)
        # There is no report: the participant's code has called os._exit(), or the check has failed.
        # If a signal ended the process, or it printed a traceback, the check has failed.
        if exit_code >= 0 and "Traceback" not in stderr:
            problem = f"{self.file.name} ended the whole process, exit code {exit_code}"
            return Refusal("raises", {"error": problem}), stdout
        *_, reason = stderr.strip().splitlines() or [f"exit code {exit_code}"]
        raise Undecided(f"the check {check} failed: {reason}")

    def _run_in_own_process(self, check: str) -> EndedCheck:
        """Let the check server run a check, and return the exit code and output of the check.

        The check server runs each check in a forked process. Raises Undecided if the server ended.
        """
        if self._check_server is None:
            self._check_server = self._start_check_server()
        assert self._check_server.stdin is not None
        assert self._check_server.stdout is not None
        try:
            print(check, file=self._check_server.stdin, flush=True)
            json_line = self._check_server.stdout.readline()
        except BrokenPipeError:
            json_line = ""
        except BaseException:  # Ctrl-C: the next check must not read the line of this one
            self._stop_check_server()
            raise
        if not json_line:
            self._stop_check_server()
            raise Undecided(f"the process of the check {check} has ended: see the log")
        return EndedCheck(**json.loads(json_line))

    def _start_check_server(self) -> subprocess.Popen[str]:
        """Start the process that forks a process for each check."""
        return subprocess.Popen(
            [sys.executable, "-m", "workshop.checks", str(self.file)],
            cwd=ROOT,
            # 0 turns the connection pool off: each thread of the check makes its own connection.
            env=self.environment | {"SHOP_DB_POOL": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,
        )

    def _stop_check_server(self) -> None:
        process = self._check_server
        if process is None:
            return
        self._check_server = None
        process.terminate()
        # At the end of its `with` block, Popen closes the pipes and waits for the process. Closing
        # stdin writes what is left in its buffer, which fails if the process has ended already.
        with suppress(BrokenPipeError), process:
            pass

    def stop(self) -> None:
        self._stop_check_server()
        super().stop()

    def run_rush(self) -> tuple[Judgement, str]:
        """Let many buyers buy at once with the participant's code, and judge the sale.

        Return the judgement, and the first error message of the participant's code that a buyer
        got, or "". Raises Undecided if a node does not answer, or if the rush takes too long.
        """
        self._rush_count += 1
        # The prefix is RUSH_PREFIX in kit.py, which cannot be imported here without Django.
        product = f"rush-{os.getpid()}-{self._rush_count}"
        self.read_new_events()  # skips the events before this rush
        try:
            shop = self.shop(RIVALS_NODE)  # any node
            sale = int(shop.restock(product=product, stock=RUSH_STOCK)["sale"])
            buyers = [
                FaultBuyer(
                    self.history, attempt=f"{product}/buyer-{number:02}", lock=MINE, product=product
                )
                for number in range(RUSH_BUYERS)
            ]
            for buyer, node in zip(buyers, cycle(NODES), strict=False):
                buyer.start(self.shop(node))
            _wait_for_answers(buyers)
            for buyer in buyers:
                buyer.give_up()  # has no effect on a buyer that has its final answer
            stock_left = int(shop.sale(sale)["stock_left"])
            events = group_by_product(self.read_new_events()).get(product, [])
            judgement = Judgement(
                events=events,
                initial_stock=RUSH_STOCK,
                # The stock that the shop shows just after the opening. It is not read here.
                opening_stock=RUSH_STOCK,
                stock_left=stock_left,
                orders=shop.orders(sale),
            )
            return judgement, self._find_participants_error(events)
        except ShopUnreachable as error:
            raise Undecided(f"a node does not answer: {error}") from error

    def _find_participants_error(self, events: Sequence[Event]) -> str:
        """Return the first error of the participant's code in the answers to buyers, or "".

        The message of such an error begins with the name of the file (see demo/own_strategies.py).
        An unexpected error in the shop is returned, too.
        """
        for event in events:
            error = str(event.get("error", ""))
            if event["by"] == "buyer" and error.startswith((self.file.name, CRASH_MESSAGE_START)):
                return error
        return ""

    def restart_hung_nodes(self) -> None:
        """Restart each node that does not answer. The participant's code may loop forever in it."""
        for number in NODES:
            shop = self.shop(number)
            shop.timeout = HUNG_NODE_TIMEOUT_SECONDS
            try:
                shop.read_readyz()
            except ShopUnreachable:
                self.restart(number)


def _wait_for_answers(buyers: Sequence[FaultBuyer]) -> None:
    """Wait until every buyer of a rush has its final answer, or the rush is stuck.

    In a rush many buyers buy at once. A rush is stuck if no buyer gets its final answer within
    SILENCE_TIMEOUT_SECONDS. Raises Undecided after RUSH_TIMEOUT_SECONDS.
    """
    started_at = time.monotonic()
    last_answer_at = started_at
    waiting_count = len(buyers)
    while waiting_count:
        now = time.monotonic()
        if now - last_answer_at > SILENCE_TIMEOUT_SECONDS:
            return
        if now - started_at > RUSH_TIMEOUT_SECONDS:
            raise Undecided(f"a rush took more than {RUSH_TIMEOUT_SECONDS:g} s here")
        time.sleep(POLL_INTERVAL_SECONDS)
        new_waiting_count = sum(not buyer.is_done.is_set() for buyer in buyers)
        if new_waiting_count < waiting_count:
            last_answer_at = now
        waiting_count = new_waiting_count
