"""Runs one check of a participant's file in its own process.

    python -m workshop.checks CHECK FILE

CHECK names a function of this package as `module.function`; `module` alone means `module.refusal`.
The function returns the refusal of a solution that is not accepted, or None (workshop/refusal.py).
The last line of stdout is JSON: {"refusal": null}, {"refusal": {code, facts, story}} or
{"undecided": why}.
"""

import json
import os
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from workshop.checks.watch import give_up_slow_steps
from workshop.refusal import Refusal, Undecided


def main(check: str, path: Path) -> Refusal | None:
    """Return the refusal of a file, or None if it passes the check. Raises Undecided."""
    import django

    django.setup()
    from demo.own_strategies import BrokenFile, OwnFile
    from shop.schedules.two_buyers import TimedOut
    from workshop.checks.mistakes import refusal_for_error
    from workshop.checks.swallowed import SwallowedMistakes

    give_up_slow_steps(path, print_outcome_and_exit)
    with SwallowedMistakes(path) as swallowed:
        try:
            module = OwnFile("mine", path).module()
        except BrokenFile as error:
            return Refusal("broken", {"error": str(error)})
        name, _, function = check.partition(".")
        find_refusal = getattr(import_module(f"workshop.checks.{name}"), function or "refusal")
        try:
            refusal: Refusal | None = find_refusal(module)
        except Undecided:
            raise
        except TimedOut as error:
            raise Undecided(str(error)) from error
        except (Exception, SystemExit) as error:
            return refusal_for_error(error, module)
    return refusal and swallowed.cause_of(refusal)


def print_outcome_and_exit(outcome: Refusal | Undecided | None) -> None:
    """Print the outcome as JSON and end this process, even if a thread of the file still runs."""
    if isinstance(outcome, Undecided):
        report: dict[str, object] = {"undecided": str(outcome)}
    else:
        report = {"refusal": outcome and asdict(outcome)}
    print(f"\n{json.dumps(report, default=str)}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    try:
        print_outcome_and_exit(main(sys.argv[1], Path(sys.argv[2])))
    except Undecided as error:
        print_outcome_and_exit(error)
