"""Runs one command of python -m loadtest."""

from __future__ import annotations

import argparse
import secrets
import signal
from collections.abc import Sequence

from rich.console import Console

from loadtest.commands import chaos, demo, faults, load, matrix, serve, target
from loadtest.commands.arguments import parse
from loadtest.commands.rushes import CONTRAST, Setting
from loadtest.commands.terminal import console as console_on_stdout
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import SERVERS, StackError
from servers import embedded
from servers.embedded import EmbeddedError
from servers.errors import explain
from servers.signals import end_on, end_on_hangup_and_sigterm

#: The commands that run rushes.
RUSHES = {"demo": demo.run, "matrix": matrix.run, "serve": serve.run}


def main(arguments: Sequence[str], description: str | None = None) -> int:
    """Run one command. Returns its exit code: 0, 1 for verdicts off, 2 for what did not start, 130
    after Ctrl-C. Whatever happens, what was started is stopped before anything is printed of it."""
    given = parse(arguments, description)
    end_on(signal.SIGINT)
    end_on_hangup_and_sigterm()
    console = console_on_stdout()
    try:
        return _run(given, console)
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


def _run(given: argparse.Namespace, console: Console) -> int:
    verbose = given.verbose
    if given.command == "faults":
        server = given.server or SERVERS[0]
        chosen = faults.Chosen(given.fault or (), given.lock or (), given.seed, server)
        return faults.run(chosen, console, verbose=verbose)
    if given.command == "chaos":
        seed = secrets.randbits(32) if given.seed is None else given.seed
        return chaos.run(given.minutes or 2.0, seed, console, verbose=verbose)
    if given.command == "load":
        return load.run(load.chosen(given), console, verbose=verbose)
    if given.command == "target":
        return target.run(target.chosen(given), console, verbose=verbose)
    options = {name: value for name, value in vars(given).items() if value is not None}
    locks = options.pop("lock", CONTRAST if given.command == "demo" else ())
    return RUSHES[options.pop("command")](Setting(locks=locks, **options), console)
