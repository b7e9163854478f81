"""Runs checks of a participant's file, each in its own process.

    python -m workshop.checks FILE

Each line of stdin is the name of a check (workshop/checks/one_check.py). For each line, this
process prints the JSON of an EndedCheck on one line. Starting Python and importing the shop takes a
second, so this process does that once, and forks the process of each check.
"""

import json
import os
import signal
import sys
import tempfile
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import IO

import django

from servers.signals import end_on
from workshop.checks.ended_check import CHECK_TIMEOUT_SECONDS, EndedCheck
from workshop.session import kill_process_group

STDIN = 0
STDOUT = 1
STDERR = 2


def main(file: Path) -> None:
    """Run the checks whose names are the lines of stdin, and print each result as JSON.

    SIGTERM ends this process and a running check.
    """
    end_on(signal.SIGTERM)
    django.setup()
    for line in sys.stdin:
        print(json.dumps(asdict(run_in_own_process(line.strip(), file))), flush=True)


def run_in_own_process(check: str, file: Path) -> EndedCheck:
    """Run a check of the file in a forked process. Return its exit code and what it has printed.

    The process is killed after CHECK_TIMEOUT_SECONDS. When it has ended, all processes that it
    started are killed, too.
    """
    from workshop.checks import one_check  # needs django.setup()

    one_check.find_check(check)  # imports the module of the check, for this check and later ones
    # The output goes to files instead of pipes. If the participant's file starts a process, this
    # process may keep a pipe open, and reading the pipe would never end.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:

        def run_check() -> None:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            with open(os.devnull, "rb") as no_input:
                os.dup2(no_input.fileno(), STDIN)
            os.dup2(stdout.fileno(), STDOUT)
            os.dup2(stderr.fileno(), STDERR)
            one_check.run_and_exit(check, file)

        process = get_context("fork").Process(target=run_check)
        process.start()
        assert process.pid is not None
        try:
            process.join(CHECK_TIMEOUT_SECONDS)
            exit_code = process.exitcode
        finally:
            kill_process_group(process.pid)
            process.join()
        return EndedCheck(exit_code, read_from_start(stdout), read_from_start(stderr))


def read_from_start(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
