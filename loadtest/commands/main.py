"""Runs one command of python -m loadtest."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from loadtest.commands import chaos, demo, faults, load, matrix, serve, target
from loadtest.commands.arguments import parse
from loadtest.commands.rushes import Setting
from loadtest.commands.terminal import console as console_on_stdout
from loadtest.load.plan import Chosen
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import StackError
from servers import embedded
from servers.embedded import EmbeddedError
from servers.errors import explain
from servers.signals import end_on, end_on_hangup_and_sigterm

#: Each command, and the type of what it is asked for: its fields are the options.
COMMANDS: dict[str, tuple[Callable[..., int], Callable[..., Any]]] = {
    "demo": (demo.run, Setting),
    "matrix": (matrix.run, partial(Setting, locks=())),
    "faults": (faults.run, faults.Chosen),
    "chaos": (chaos.run, chaos.Chosen),
    "target": (target.run, target.Chosen),
    "load": (load.run, Chosen),
    "serve": (serve.run, partial(Setting, locks=())),
}


def main(arguments: Sequence[str], description: str | None = None) -> int:
    """Run one command. Returns its exit code: 0, 1 for verdicts off, 2 for what did not start, 130
    after Ctrl-C. Whatever happens, what was started is stopped before anything is printed of it."""
    options = vars(parse(arguments, description))
    run, asked = COMMANDS[options.pop("command")]
    verbose = options.pop("verbose", False)
    end_on(signal.SIGINT)
    end_on_hangup_and_sigterm()
    console = console_on_stdout()
    try:
        return run(asked(**options), console, verbose=verbose)
    except (StackError, EmbeddedError, ShopUnreachable) as error:
        failed = str(error)
    except OSError as error:
        failed = explain(error)
    except KeyboardInterrupt:
        embedded.detach()
        console.print("stopped; everything that was started is stopped too")
        return 130
    embedded.detach()
    console.print(failed, style="red", markup=False, highlight=False, soft_wrap=True)
    return 2
