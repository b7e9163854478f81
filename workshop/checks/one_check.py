"""Runs one check of a participant's file in its own process.

    python -m workshop.checks CHECK FILE

CHECK names a function of this package as `module.function`, as in the `checks` of lessons.toml;
`module` alone means `module.refusal`. The function returns the refusal of a solution that is not
accepted, or None (workshop/refusal.py). The last line of stdout is JSON: {"refusal": null},
{"refusal": {code, facts, story}} or {"undecided": why}.
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
    """Return the refusal of a file, or None if it passes the check.

    If a step of the check takes too long, the outcome is printed and the process ends. Raises
    Undecided if a server does not answer or the machine is too slow.

    check  `module.function` or `module`, as in the module's docstring
    """
    import django

    django.setup()
    from demo.own_strategies import BrokenFile, OwnFile
    from shop.schedules.two_buyers import TimedOut
    from workshop.checks.mistakes import explain_error
    from workshop.checks.swallowed import SwallowedMistakes

    give_up_slow_steps(path, print_outcome_and_exit)
    with SwallowedMistakes(path) as swallowed:
        try:
            module = OwnFile("mine", path).load_module()
        except BrokenFile as error:
            return Refusal("broken", {"error": str(error)})
        module_name, _, function_name = check.partition(".")
        check_module = import_module(f"workshop.checks.{module_name}")
        find_refusal = getattr(check_module, function_name or "refusal")
        try:
            refusal: Refusal | None = find_refusal(module)
        except Undecided:
            raise
        except TimedOut as error:
            raise Undecided(str(error)) from error
        except (Exception, SystemExit) as error:
            return explain_error(error, module)
    if refusal is None:
        return None
    return swallowed.explain_refusal(refusal)


def print_outcome_and_exit(outcome: Refusal | Undecided | None) -> None:
    """Print the outcome as JSON and end this process, even if a thread of the file still runs."""
    if isinstance(outcome, Undecided):
        report: dict[str, object] = {"undecided": str(outcome)}
    else:
        report = {"refusal": None if outcome is None else asdict(outcome)}
    # The facts may contain any object that the participant's code returned: it is printed as text.
    report_line = json.dumps(report, default=str)
    print(f"\n{report_line}", flush=True)  # the participant's output may end without a line break
    os._exit(0)


if __name__ == "__main__":
    try:
        print_outcome_and_exit(main(sys.argv[1], Path(sys.argv[2])))
    except Undecided as error:
        print_outcome_and_exit(error)
