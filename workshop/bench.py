"""Real servers, and two nodes of the shop in which the participant's file sells as `mine`."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import redis

from loadtest.faults.fault_buyer import FaultBuyer
from loadtest.faults.testbed import RIVALS_NODE, VICTIMS_NODE, Testbed
from loadtest.judge.history import group_by_product
from loadtest.judge.verdict import Judgement
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import ROOT
from servers.waiting import wait_for
from workshop.refusal import Refusal, Undecided
from workshop.session import kill

#: The strategy that is the participant's file.
MINE = "mine"
#: A rush of the workshop: small enough for a laptop, too many for the stock.
BUYERS, STOCK = 40, 20
#: Seconds without an answer after which a rush is stuck, and until a slow one is given up.
LONGEST_PAUSE = 6.0
LONGEST_RUSH = 60.0
#: How the shop begins what it says when a purchase ended in an error of no kind that it knows.
CRASHED = "the shop failed"
#: Seconds for a check in its own process; each of its steps has its own end.
LONGEST_CHECK = 60.0
#: The nodes' connections; Testbed names them.
OF_THE_NODES = """
    FROM pg_stat_activity
    WHERE datname = current_database() AND application_name IN ('oversold-A', 'oversold-B')
"""
END_CONNECTIONS = f"SELECT pid, pg_terminate_backend(pid) {OF_THE_NODES}"
COUNT_CONNECTIONS = f"SELECT count(*) {OF_THE_NODES}"
#: Connections of a node to the database: one for each of its buyers, and some for the reports. The
#: faults' own 60 would be 360 for three participants on one PostgreSQL, which takes 400.
POOL = BUYERS // 2 + 4


class Bench(Testbed):
    """The testbed of the faults, small enough for a laptop, with the strategy `mine`."""

    __test__ = False

    def __init__(self, file: Path, **options: Any) -> None:
        """`options` are those of Testbed: log, progress."""
        super().__init__(threads=BUYERS, extras=False, **options)
        self.file = file
        self._rushes = 0
        self.environment: dict[str, str] = {}

    def _environment(self) -> dict[str, str]:
        own = {"SHOP_DEMO_STRATEGIES": f"{MINE}={self.file}", "SHOP_DB_POOL": str(POOL)}
        self.environment = super()._environment() | own
        return self.environment

    def clean_slate(self) -> None:
        """Throw away what an earlier try has left in a session of PostgreSQL, and in Redis.

        A node keeps its connections for as long as it lives, and with them a lock of the session,
        a setting or a temporary table. Raises Undecided if a node does not come back.
        """
        try:
            with redis.Redis(port=self.main.port) as client:
                client.flushall()
                client.function_flush()
            ended = ", ".join(str(pid) for pid, _ in self.sql(END_CONNECTIONS))
            still_there = f"SELECT pid FROM pg_stat_activity WHERE pid IN ({ended or 0})"
            wait_for(lambda: not self.sql(still_there), LONGEST_PAUSE)
        except (redis.RedisError, psycopg.Error) as error:
            raise Undecided(f"a server does not answer: {error}") from error
        for number in (VICTIMS_NODE, RIVALS_NODE):
            self._reconnect(number)
        # A rush on a pool that is still being filled would be slower than one on new nodes.
        wait_for(lambda: self.sql(COUNT_CONNECTIONS)[0][0] >= 2 * POOL, LONGEST_PAUSE)

    def _reconnect(self, number: int) -> None:
        """Let a node notice that its connections have ended: the first request replaces them."""
        until = time.monotonic() + LONGEST_PAUSE
        while True:
            try:
                self.shop(number).restock(product="clean-slate", stock=1)
                return
            except ShopUnreachable as error:
                if time.monotonic() > until:
                    raise Undecided(f"a node does not answer: {error}") from error

    def run_check(self, check: str) -> tuple[Refusal | None, str]:
        """Run a check of the file in its own process, on these servers. What it found, and
        what the participant's code printed. Raises Undecided."""
        process = subprocess.Popen(
            [sys.executable, "-m", "workshop.checks", check, str(self.file)],
            cwd=ROOT,
            env=self.environment | {"SHOP_DB_POOL": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=LONGEST_CHECK)
        except subprocess.TimeoutExpired as error:
            raise Undecided(f"{check} took more than {LONGEST_CHECK:g} s here") from error
        finally:
            kill(process.pid)  # and what it forked, which may hold its pipes
            process.wait()
        *printed, last = stdout.splitlines() or [""]
        with suppress(ValueError, TypeError, KeyError):
            report = json.loads(last)
            if "undecided" in report:
                raise Undecided(report["undecided"])
            refusal = report["refusal"]
            return (None if refusal is None else Refusal(**refusal)), "\n".join(printed)
        if process.returncode >= 0 and "Traceback" not in stderr:
            ended = f"{self.file.name} ended the whole process, exit code {process.returncode}"
            return Refusal("raises", {"error": ended}), stdout
        *_, reason = stderr.strip().splitlines() or [f"it ended with {process.returncode}"]
        raise Undecided(f"the check {check} broke: {reason}")

    def rush(self) -> tuple[Judgement, str]:
        """A rush under `mine`, judged, and what a buyer was told for whom the code broke off, if
        there was one. Raises Undecided."""
        self._rushes += 1
        product = f"rush-{os.getpid()}-{self._rushes}"
        self.new_events()
        try:
            sale = int(self.shop(1).restock(product=product, stock=STOCK)["sale"])
            everybody = [
                FaultBuyer(
                    self.history, attempt=f"{product}/buyer-{n:02}", lock=MINE, product=product
                )
                for n in range(BUYERS)
            ]
            started = last = time.monotonic()
            for number, buyer in enumerate(everybody):
                buyer.start(self.shop(number % 2))
            waiting = len(everybody)
            while waiting and (now := time.monotonic()) - last <= LONGEST_PAUSE:
                if now - started > LONGEST_RUSH:
                    raise Undecided(f"a rush took more than {LONGEST_RUSH:g} s here")
                time.sleep(0.02)
                still = sum(not buyer.is_done.is_set() for buyer in everybody)
                waiting, last = still, now if still < waiting else last
            for buyer in everybody:
                buyer.give_up()
            report = self.shop(1).sale(sale)
            events = group_by_product(self.new_events()).get(product, [])
            answers = [str(event.get("error", "")) for event in events if event["by"] == "buyer"]
            broken = [error for error in answers if error.startswith((self.file.name, CRASHED))]
            judgement = Judgement(
                events=events,
                initial_stock=STOCK,
                opening_stock=STOCK,
                stock_left=int(report["stock_left"]),
                orders=self.shop(1).orders(sale),
            )
            return judgement, next(iter(broken), "")
        except ShopUnreachable as error:
            raise Undecided(f"a node does not answer: {error}") from error

    def renew_if_hung(self) -> None:
        """Kill and restart a node that does not answer: an endless loop of the participant's."""
        for number in (0, 1):
            shop = self.shop(number)
            shop.timeout = 3.0
            try:
                shop.ready()
            except ShopUnreachable:
                self.restart(number)
