"""Runs the lessons' commands on real servers, and records the results.

`python -m workshop observe` writes the results to observed.json, and some of their numbers to the
Observe sections of the lessons. The results are called observations. A rush is a sale to many
buyers at once; a schedule is an order of the moves of two buyers.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from tempfile import NamedTemporaryFile
from typing import Any
from unittest.mock import patch

from loadtest.commands.output import RESULTS
from loadtest.report.tables import ONE_PROCESS
from loadtest.stack.stack import ROOT, StackError
from workshop.bench import Bench
from workshop.lessons import HERE, Lesson, lessons

OBSERVED_FILE = HERE / "observed.json"
#: The strategies whose schedules are run; a lesson shows each of them.
SCHEDULED_STRATEGIES = ("none", "redis-in-transaction")
#: The fields of a run that are recorded.
RUN_FIELDS = ("verdict", "initial_stock", "orders", "stock_left", "oversold", "lost_updates")
#: The part of a lesson that this module writes, with its marks.
OBSERVED_BLOCK = re.compile(r"<!-- observed -->\n(.*?)<!-- /observed -->\n", re.DOTALL)


def observe() -> dict[str, Any]:
    """Run each command of the lessons, such as `make faults`, once. Return the results.

    If several lessons use a command, it runs with the options of all of them.

    The keys of the results:

    violates  strategy -> number of schedules in which both buyers get the last unit
    machine   the machine, and the versions of its servers
    demo      strategy -> RUN_FIELDS of its rush in `make demo`
    matrix    strategy -> RUN_FIELDS of its rush in `make matrix`; "<strategy>, one process" for the
              rush in one process
    ratio     strategy -> duration of its rush in `make matrix`, compared with that of row-lock
    cells     fault -> strategy -> RUN_FIELDS and the recovery time in `make faults`

    Raises StackError if a command fails.
    """
    options = _collect_options_by_command()
    demo = _run_command("demo", options["demo"])
    matrix = _run_command("matrix", options["matrix"])
    faults = _run_command("faults", options["faults"])
    seconds_by_strategy = {
        run["lock"]: run["duration_s"] for run in matrix["runs"] if _is_on_two_nodes(run)
    }
    matrix_results = {}
    for run in matrix["runs"]:
        title = run["lock"] if _is_on_two_nodes(run) else f"{run['lock']}, one process"
        matrix_results[title] = _select_fields(run)
    cells: dict[str, Any] = defaultdict(dict)
    for cell in faults["runs"]:
        recovery = {"recovery_s": cell["recovery_s"]}
        cells[cell["fault"]][cell["lock"]] = _select_fields(cell) | recovery
    return {
        "violates": count_overselling_schedules(),
        "machine": demo["machine"],
        "demo": {run["lock"]: _select_fields(run) for run in demo["runs"]},
        "matrix": matrix_results,
        "ratio": {
            strategy: round(seconds / seconds_by_strategy["row-lock"], 1)
            for strategy, seconds in seconds_by_strategy.items()
        },
        "cells": cells,
    }


def _collect_options_by_command() -> dict[str, dict[str, list[str]]]:
    """Return the values that the lessons pass to each option of each command.

    A lesson's command looks like `make faults ARGS='--fault crash --lock setnx,token'`, which has
    the command `faults` and the options `--fault` and `--lock`.
    """
    options_by_command: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for lesson in lessons().values():
        make, command, *make_arguments = shlex.split(lesson.command)
        assert make == "make", lesson.command
        words: list[str] = []
        if make_arguments:
            words = shlex.split(make_arguments[0].removeprefix("ARGS="))
        for option, comma_separated in zip(words[::2], words[1::2], strict=True):
            values = options_by_command[command][option]
            values += [name for name in comma_separated.split(",") if name not in values]
    return options_by_command


def count_overselling_schedules() -> dict[str, int]:
    """Return, by strategy, the number of schedules in which the last unit is sold twice.

    Two buyers make three moves each. The schedules are the 20 possible orders of these moves.
    """
    with (
        NamedTemporaryFile() as log,
        Bench(lessons()[5].unsolved_path, log=log) as bench,  # any file: only the servers are used
        patch.dict(os.environ, bench.environment),
        # Django reads its settings once per process, so a new process uses the bench's servers.
        ProcessPoolExecutor(1, get_context("spawn")) as child,
    ):
        return child.submit(_count_overselling_schedules_in_this_process).result()


def _count_overselling_schedules_in_this_process() -> dict[str, int]:
    """Return the number of schedules in which each strategy oversells.

    Runs in a separate process, which uses the servers in its environment variables.
    """
    import django

    django.setup()
    from shop.schedules.two_buyers import run_all_schedules

    return {
        strategy: sum(run.is_wrong for run in run_all_schedules(strategy, 1))
        for strategy in SCHEDULED_STRATEGIES
    }


def _run_command(command: str, options: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Run a command of loadtest, and return its summary.json. Raises StackError if it fails."""
    arguments = [sys.executable, "-m", "loadtest", command]
    arguments += [f"{option}={','.join(values)}" for option, values in options.items()]
    process = subprocess.run(arguments, cwd=ROOT, stdin=subprocess.DEVNULL)
    if process.returncode not in (0, 1):  # 1: an unexpected verdict, which is a result, too
        raise StackError(
            f"python -m loadtest {command} failed with exit code {process.returncode}; run it alone"
        )
    return dict(json.loads((RESULTS / "latest" / "summary.json").read_text(encoding="utf-8")))


def _is_on_two_nodes(run: Mapping[str, Any]) -> bool:
    """Return whether a rush of `make matrix` ran on two nodes rather than in one process.

    A rush is a sale to many buyers at once. The field `fault` of a rush in one process is
    ONE_PROCESS.
    """
    return bool(run["fault"] != ONE_PROCESS)


def _select_fields(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run that are recorded."""
    return {name: run[name] for name in RUN_FIELDS}


def meets_expectation(lesson: Lesson, observations: Mapping[str, Any]) -> bool:
    """Return whether the observations confirm the lesson's right answer.

    The lesson's `expect` is a Python expression that uses the observations and must be true.

    Raises NameError if the expression uses a name that is not an observation.
    """
    return bool(eval(lesson.expect, {"__builtins__": {}}, dict(observations)))


def make_observed_block(lesson: Lesson, observations: Mapping[str, Any]) -> str:
    """Return the block in a lesson's text that OBSERVED_BLOCK matches.

    It is the lesson's template `observed`, filled in with the observations.
    """
    return f"<!-- observed -->\n{lesson.observed.format(**observations)}\n<!-- /observed -->\n"


def write_observations(observations: Mapping[str, Any]) -> None:
    """Write the observations to observed.json, and some of their numbers to the lessons' texts."""
    partial_path = OBSERVED_FILE.with_suffix(".partial")
    partial_path.write_text(json.dumps(observations, indent=1) + "\n", encoding="utf-8")
    os.replace(partial_path, OBSERVED_FILE)
    for lesson in lessons().values():
        if lesson.observed:
            observed_block = make_observed_block(lesson, observations)
            # sub() treats a backslash in the new text as an escape, so double it.
            text = OBSERVED_BLOCK.sub(observed_block.replace("\\", r"\\"), lesson.text)
            (HERE / "lessons" / f"{lesson.slug}.md").write_text(text, encoding="utf-8")
