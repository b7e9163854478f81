"""Runs one check of a participant's file in this process.

A check has a name such as `answers.tally`, as in the `checks` of lessons.toml. This is the function
check_tally() in the module `answers` of this package. It gets the participant's file, and returns
a Refusal, the reason why the participant's solution is not accepted, or None (workshop/refusal.py).
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType

from demo.own_strategies import BrokenFile, OwnFile
from shop.schedules.two_buyers import TimedOut
from workshop.checks.mistakes import explain_error
from workshop.checks.swallowed import SwallowedMistakes
from workshop.checks.watch import watch_for_slow_steps
from workshop.refusal import Refusal, Undecided


def run_and_exit(check: str, path: Path) -> None:
    """Check a file, print the outcome, and end this process with exit code 0.

    The last line of stdout is JSON: {"refusal": null}, {"refusal": {code, details, story}} or
    {"undecided": reason}. Raises any error of the check itself.

    check  the name of the check, such as `answers.tally`
    path   the participant's file
    """
    try:
        print_outcome_and_exit(find_refusal(check, path))
    except Undecided as error:
        print_outcome_and_exit(error)


def find_refusal(check: str, path: Path) -> Refusal | None:
    """Run a check on a participant's file. Return the file's refusal, or None if it passes.

    If a step of the check takes too long, a second thread prints the outcome and ends the process.
    Raises Undecided if a server does not answer or the machine is too slow.
    """
    watch_for_slow_steps(path, print_outcome_and_exit)
    with SwallowedMistakes(path) as swallowed_mistakes:
        try:
            module = OwnFile("mine", path).load_module()
        except BrokenFile as error:
            return Refusal("broken", {"error": str(error)})
        check_function = find_check(check)
        try:
            refusal = check_function(module)
        except Undecided:
            raise
        except TimedOut as error:
            raise Undecided(str(error)) from error
        except (Exception, SystemExit) as error:
            return explain_error(error, module)
    if refusal is None:
        return None
    return swallowed_mistakes.replace_refusal(refusal)


def find_check(check: str) -> Callable[[ModuleType], Refusal | None]:
    """Import the module of a check, and return the function of the check.

    check  the name of the check. For `answers.tally`, return check_tally() in answers.py
    """
    module_name, _, short_name = check.partition(".")
    module = import_module(f"workshop.checks.{module_name}")
    function: Callable[[ModuleType], Refusal | None] = getattr(module, f"check_{short_name}")
    return function


def print_outcome_and_exit(outcome: Refusal | Undecided | None) -> None:
    """Print the outcome as JSON and end this process, even if a thread of the file still runs."""
    if isinstance(outcome, Undecided):
        report: dict[str, object] = {"undecided": str(outcome)}
    else:
        report = {"refusal": None if outcome is None else asdict(outcome)}
    # The refusal's details may contain any object that the participant's code returned. JSON lacks
    # most types, so such an object is printed as text.
    report_line = json.dumps(report, default=str)
    print(f"\n{report_line}", flush=True)  # the participant's output may end without a line break
    os._exit(0)
