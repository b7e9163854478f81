"""Runs the checks of an exercise up to the first refusal.

The servers are started for the first check, and stay up for the next ones.
"""

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import IO

from rich.console import Console

from loadtest.judge.run import Cell
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import ROOT, StackError
from servers.embedded import EmbeddedError
from workshop import shop_faults
from workshop.bench import RUSH_BUYERS, RUSH_STOCK, Bench
from workshop.lessons import Lesson
from workshop.refusal import COPY_NAME, UNDECIDED, CheckResult, Refusal, Undecided

#: The name of the check of lesson 12, which causes many faults, one after the other.
ALL_FAULTS_CHECK = "boss"
#: Name of a check -> the seconds that it takes on two cores. Other checks take
#: DEFAULT_CHECK_SECONDS.
CHECK_SECONDS = {**dict.fromkeys(shop_faults.CONTROLS, 6), ALL_FAULTS_CHECK: 45}
DEFAULT_CHECK_SECONDS = 2


def check(lesson: Lesson, bench: Bench) -> CheckResult:
    """Run the lesson's checks on the bench's file up to the first refusal, and return the result.

    A refusal is the reason why the file is not accepted. After an undecided result the servers need
    a restart. Raises StackError if a node cannot be started again.
    """
    output = ""
    cells: list[Cell] = []  # the result of the file under each fault, in lesson 12
    try:
        bench.reset_servers()
        for check_name in lesson.checks:
            if check_name == "rush":
                refusal = _check_rush(bench)
            elif check_name == ALL_FAULTS_CHECK:
                refusal, cells = shop_faults.check_all_faults(bench)
            elif check_name in shop_faults.CONTROLS:
                refusal = shop_faults.check_fault(bench, check_name)
            else:
                refusal, check_output = bench.run_check(check_name)
                output += check_output
            if refusal is not None:
                return CheckResult(refusal, output=output, cells=cells)
    except Undecided as error:
        return CheckResult(undecided_reason=str(error), output=output)
    return CheckResult(output=output, cells=cells)


def describe_checks(lesson: Lesson) -> str:
    """Return the names and the duration of the checks: "ending, then rush, about 4 s"."""
    short_names = [check_name.rpartition(".")[2] for check_name in lesson.checks]
    names = ", then ".join(short_name.replace("_", " ") for short_name in short_names)
    seconds = sum(CHECK_SECONDS.get(name, DEFAULT_CHECK_SECONDS) for name in lesson.checks)
    return f"{names}, about {seconds} s"


def _check_rush(bench: Bench) -> Refusal | None:
    """Let many buyers buy at once (a rush), and return the refusal of the participant's file.

    Return None if the verdict on the sale is `exact`, and the participant's code raised no error.
    If a buyer got no final answer, or too few units were sold, restart the nodes that hang. Raises
    Undecided if the verdict is not `exact`, but the file is not to blame.
    """
    judgement, error = bench.run_rush()
    details = {"buyers": RUSH_BUYERS, "error": error, **judgement.as_judged()}
    if judgement.oversold or judgement.lost_updates > 0:
        return Refusal("rush-oversold", details)
    if error:
        return Refusal("rush-error", details)
    order_count = len(judgement.orders)
    if order_count < RUSH_STOCK or judgement.never_answered:
        bench.restart_hung_nodes()
        buyers_with_final_answer = order_count + judgement.outcomes.get("sold_out", 0)
        if buyers_with_final_answer == RUSH_BUYERS:  # some of them got `sold_out` too early
            return Refusal("rush-gave-up", details)
        return Refusal("rush-stuck", details)
    if judgement.verdict != "exact":
        raise Undecided(f"a rush was {judgement.verdict}: {judgement.why or 'run it again'}")
    return None


class Checker:
    """Checks copies of participants' files. The first check that needs the servers starts them."""

    def __init__(self, out: Console, log: IO[bytes]) -> None:
        self.out = out
        self.log = log
        self._bench: Bench | None = None
        # Two sessions may run at the same time, so each has a folder for its copy of the file.
        self._folder = tempfile.TemporaryDirectory(prefix="oversold-workshop-")
        self._copy = Path(self._folder.name) / COPY_NAME

    def check(self, lesson: Lesson, file: Path) -> CheckResult:
        """Check a participant's file, and return the result.

        After an undecided result the servers are stopped, and the next check starts new ones.
        """
        try:
            code = file.read_bytes()
        except OSError:
            return CheckResult(Refusal("gone", {"file": file.name}))
        self.out.print(f"checking: {describe_checks(lesson)}")
        try:
            self._copy.write_bytes(code)
            result = check(lesson, self._get_running_bench())
        except (StackError, EmbeddedError, ShopUnreachable, OSError) as error:
            if self._bench is None:  # the servers did not start; the doctor prints the reason
                self.out.print(f"{error}\n")
                doctor = [sys.executable, "-m", "servers.doctor"]
                subprocess.run(doctor, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
            result = CheckResult(
                undecided_reason=f"{error}\nSee {os.path.relpath(self.log.name, ROOT)}."
            )
        if result.exit_code == UNDECIDED:
            self._stop_servers()
        return result

    def close(self) -> None:
        """Stop the servers, and remove the copy of the file."""
        self._stop_servers()
        self._folder.cleanup()

    def _get_running_bench(self) -> Bench:
        """Return the bench: the servers on which the checks run. Start them first if needed."""
        if self._bench is None:
            print_step = partial(self.out.print, style="dim")
            bench = Bench(self._copy, log=self.log, progress=print_step)
            bench.__enter__()  # starts the servers; _stop_servers() stops them
            self._bench = bench  # not set if a server did not start
        return self._bench

    def _stop_servers(self) -> None:
        if self._bench is not None:
            self._bench.stop()
            self._bench = None
