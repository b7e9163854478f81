"""Records what the lessons' commands show on real servers: `python -m workshop observe`.

It is written to observed.json, and the Observe sections of the lessons take their figures from it.
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
#: Locks whose schedules are run.
SCHEDULED = ("none", "redis-in-transaction")
#: What is kept of a run.
FIGURES = ("verdict", "initial_stock", "orders", "stock_left", "oversold", "lost_updates")
BLOCK = re.compile(r"<!-- observed -->\n(.*?)<!-- /observed -->\n", re.DOTALL)


def observe() -> dict[str, Any]:
    """Run the commands of all lessons, those of one kind at once. Raises StackError."""
    commands = _asked()
    demo, matrix, faults = (_run(name, commands[name]) for name in ("demo", "matrix", "faults"))
    nodes = {run["lock"]: run["duration_s"] for run in matrix["runs"] if _on_two_nodes(run)}
    cells: dict[str, Any] = defaultdict(dict)
    for cell in faults["runs"]:
        cells[cell["fault"]][cell["lock"]] = _figures(cell) | {"recovery_s": cell["recovery_s"]}
    return {
        "violates": violations(),
        "machine": demo["machine"],
        "demo": {run["lock"]: _figures(run) for run in demo["runs"]},
        "matrix": {
            run["lock"] + ("" if _on_two_nodes(run) else ", one process"): _figures(run)
            for run in matrix["runs"]
        },
        "ratio": {lock: round(took / nodes["row-lock"], 1) for lock, took in nodes.items()},
        "cells": cells,
    }


def _asked() -> dict[str, dict[str, list[str]]]:
    """Command -> option -> every value that a lesson gives it."""
    values_by_option: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for lesson in lessons().values():
        make, name, *rest = shlex.split(lesson.command)
        assert make == "make", lesson.command
        options = shlex.split(rest[0].removeprefix("ARGS=")) if rest else []
        for option, values in zip(options[::2], options[1::2], strict=True):
            kept = values_by_option[name][option]
            kept += [value for value in values.split(",") if value not in kept]
    return values_by_option


def violations() -> dict[str, int]:
    """Lock -> in how many of the twenty schedules both buyers get the last unit."""
    with (
        NamedTemporaryFile() as log,
        Bench(lessons()[5].shipped, log=log) as bench,
        patch.dict(os.environ, bench.environment),
        ProcessPoolExecutor(1, get_context("spawn")) as child,  # its Django has these servers
    ):
        return child.submit(_violations_here).result()


def _violations_here() -> dict[str, int]:
    import django

    django.setup()
    from shop.schedules.two_buyers import every_run

    return {lock: sum(run.violates for run in every_run(lock, 1)) for lock in SCHEDULED}


def _run(command: str, options: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The summary of a command of loadtest's."""
    words = [sys.executable, "-m", "loadtest", command]
    words += [f"{option}={','.join(values)}" for option, values in options.items()]
    done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL)
    if done.returncode not in (0, 1):
        raise StackError(f"python -m loadtest {command} failed: run it on its own")
    return dict(json.loads((RESULTS / "latest" / "summary.json").read_text(encoding="utf-8")))


def _on_two_nodes(run: Mapping[str, Any]) -> bool:
    return bool(run["fault"] != ONE_PROCESS)


def _figures(run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: run[name] for name in FIGURES}


def holds(lesson: Lesson, observations: Mapping[str, Any]) -> bool:
    """Return whether a lesson's `expect` is true of the observations."""
    return bool(eval(lesson.expect, {"__builtins__": {}}, dict(observations)))


def block(lesson: Lesson, observations: Mapping[str, Any]) -> str:
    """The figures of a lesson's Observe section."""
    return f"<!-- observed -->\n{lesson.observed.format(**observations)}\n<!-- /observed -->\n"


def write(observations: Mapping[str, Any]) -> None:
    """Write observed.json, and the figures into the lessons."""
    partial = OBSERVED.with_suffix(".partial")
    partial.write_text(json.dumps(observations, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, OBSERVED)
    for lesson in lessons().values():
        if lesson.observed:
            text = BLOCK.sub(block(lesson, observations).replace("\\", r"\\"), lesson.text)
            (HERE / "lessons" / f"{lesson.slug}.md").write_text(text, encoding="utf-8")
