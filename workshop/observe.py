"""Runs the lessons' commands on real servers, and records the results: `workshop observe`.

The results are written to observed.json, and their figures to the Observe sections of the lessons.
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

OBSERVED = HERE / "observed.json"
#: The strategies whose schedules are run.
SCHEDULED_STRATEGIES = ("none", "redis-in-transaction")
#: The fields of a run that are kept.
RUN_FIELDS = ("verdict", "initial_stock", "orders", "stock_left", "oversold", "lost_updates")
OBSERVED_BLOCK = re.compile(r"<!-- observed -->\n(.*?)<!-- /observed -->\n", re.DOTALL)


def observe() -> dict[str, Any]:
    """Run each command of the lessons once, with the options of all lessons. Return the results.

    Raises StackError if a command fails.
    """
    options = _options_by_command()
    demo = _run_command("demo", options["demo"])
    matrix = _run_command("matrix", options["matrix"])
    faults = _run_command("faults", options["faults"])
    seconds_by_lock = {
        run["lock"]: run["duration_s"] for run in matrix["runs"] if _on_two_nodes(run)
    }
    cells: dict[str, Any] = defaultdict(dict)
    for cell in faults["runs"]:
        cells[cell["fault"]][cell["lock"]] = _select_fields(cell) | {
            "recovery_s": cell["recovery_s"]
        }
    return {
        "violates": count_violations(),
        "machine": demo["machine"],
        "demo": {run["lock"]: _select_fields(run) for run in demo["runs"]},
        "matrix": {
            run["lock"] + ("" if _on_two_nodes(run) else ", one process"): _select_fields(run)
            for run in matrix["runs"]
        },
        "ratio": {
            lock: round(seconds / seconds_by_lock["row-lock"], 1)
            for lock, seconds in seconds_by_lock.items()
        },
        "cells": cells,
    }


def _options_by_command() -> dict[str, dict[str, list[str]]]:
    """Return every value that the lessons give each option of each command."""
    values_by_option: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for lesson in lessons().values():
        make, name, *rest = shlex.split(lesson.command)
        assert make == "make", lesson.command
        options = shlex.split(rest[0].removeprefix("ARGS=")) if rest else []
        for option, values in zip(options[::2], options[1::2], strict=True):
            known_values = values_by_option[name][option]
            known_values += [value for value in values.split(",") if value not in known_values]
    return values_by_option


def count_violations() -> dict[str, int]:
    """Return for each strategy in how many of the 20 schedules both buyers get the last unit."""
    with (
        NamedTemporaryFile() as log,
        Bench(lessons()[5].shipped, log=log) as bench,  # any file: only the servers are used
        patch.dict(os.environ, bench.environment),
        # Django reads its settings once per process, so a new process uses the bench's servers.
        ProcessPoolExecutor(1, get_context("spawn")) as child,
    ):
        return child.submit(_count_violations_here).result()


def _count_violations_here() -> dict[str, int]:
    import django

    django.setup()
    from shop.schedules.two_buyers import run_all_schedules

    return {
        lock: sum(run.is_wrong for run in run_all_schedules(lock, 1))
        for lock in SCHEDULED_STRATEGIES
    }


def _run_command(command: str, options: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Run a command of loadtest, and return its summary.json. Raises StackError if it fails."""
    arguments = [sys.executable, "-m", "loadtest", command]
    arguments += [f"{option}={','.join(values)}" for option, values in options.items()]
    process = subprocess.run(arguments, cwd=ROOT, stdin=subprocess.DEVNULL)
    if process.returncode not in (0, 1):
        raise StackError(
            f"python -m loadtest {command} failed with exit code {process.returncode}; run it alone"
        )
    return dict(json.loads((RESULTS / "latest" / "summary.json").read_text(encoding="utf-8")))


def _on_two_nodes(run: Mapping[str, Any]) -> bool:
    return bool(run["fault"] != ONE_PROCESS)


def _select_fields(run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: run[name] for name in RUN_FIELDS}


def meets_expectation(lesson: Lesson, observations: Mapping[str, Any]) -> bool:
    """Return whether the observations meet a lesson's `expect`, an expression."""
    return bool(eval(lesson.expect, {"__builtins__": {}}, dict(observations)))


def block(lesson: Lesson, observations: Mapping[str, Any]) -> str:
    """Return the block of a lesson's Observe section that this module writes, with the figures."""
    return f"<!-- observed -->\n{lesson.observed.format(**observations)}\n<!-- /observed -->\n"


def write(observations: Mapping[str, Any]) -> None:
    """Write observed.json, and the figures into the lessons."""
    partial = OBSERVED.with_suffix(".partial")
    partial.write_text(json.dumps(observations, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, OBSERVED)
    for lesson in lessons().values():
        if lesson.observed:
            text = OBSERVED_BLOCK.sub(block(lesson, observations).replace("\\", r"\\"), lesson.text)
            (HERE / "lessons" / f"{lesson.slug}.md").write_text(text, encoding="utf-8")
