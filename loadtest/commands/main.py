"""Runs one command of python -m loadtest: the module of its name has its `run`."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from importlib import import_module

from loadtest.commands.arguments import parse
from loadtest.commands.output import console_on_stdout
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import StackError
from servers import embedded
from servers.embedded import EmbeddedError
from servers.errors import explain
from servers.signals import end_on, end_on_hangup_and_sigterm


def main(arguments: Sequence[str], description: str | None = None) -> int:
    """Run one command. Returns its exit code: 0, 1 for verdicts off, 2 for what did not start, 130
    after Ctrl-C. Whatever happens, what was started is stopped before anything is printed of it."""
    options = vars(parse(arguments, description))
    command = import_module(f"loadtest.commands.{options.pop('command')}")
    end_on(signal.SIGINT)
    end_on_hangup_and_sigterm()
    console = console_on_stdout()
    try:
        return int(command.run(console, **options))
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
