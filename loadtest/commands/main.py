"""Runs one command of python -m loadtest."""

import signal
from collections.abc import Callable, Sequence
from pkgutil import resolve_name

from rich.console import Console

from loadtest.commands.arguments import parse
from loadtest.commands.output import console_on_stdout
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import StackError
from servers import embedded
from servers.embedded import EmbeddedError
from servers.errors import explain
from servers.signals import end_on, end_on_hangup_and_sigterm

#: The functions of commands that have no module of their own.
ELSEWHERE = {"demo": "rushes:demo", "matrix": "rushes:matrix"}


def main(arguments: Sequence[str], description: str | None = None) -> int:
    """Run one command. Returns its exit code, as exit_code_of() does."""
    options = vars(parse(arguments, description))
    command = options.pop("command")
    run = resolve_name(f"loadtest.commands.{ELSEWHERE.get(command, f'{command}:run')}")
    return exit_code_of(lambda console: int(run(console, **options)))


def exit_code_of(run: Callable[[Console], int]) -> int:
    """What `run` returns: 0, or 1 for verdicts off; 2 for what did not start, 130 after Ctrl-C.
    Whatever happens, what was started is stopped before anything is printed of it."""
    end_on(signal.SIGINT)
    end_on_hangup_and_sigterm()
    console = console_on_stdout()
    try:
        return run(console)
    except (StackError, EmbeddedError, ShopUnreachable) as error:
        failed = str(error)
    except OSError as error:
        failed = explain(error)
    except KeyboardInterrupt:
        embedded.detach()
        console.print("stopped; everything that was started is stopped too")
        return 130
    embedded.detach()
    console.print(failed, style="red", markup=False, soft_wrap=True)
    return 2
