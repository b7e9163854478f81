"""python -m loadtest: show the oversell, then the locks that stop it.

demo   the same rush under each lock, with a verdict each (the default)
matrix every strategy under the rush, each compared with its expected verdict
faults every fault made for real, each strategy compared with its expected verdict
chaos  random faults at random times during rushes of the sound strategies
growth rushes of more and more buyers: seconds, memory, threads and processors that each takes
bench  the rush under `redis` compared with other locks and the floor, in interleaved rounds
target the rush against a shop of your own: target my_shop.py --host http://127.0.0.1:8001
load   sustained sales: buyers who keep coming, at a rate or one purchase after the other
serve  the shop with its page, and Locust's web UI, left running
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys

from rich.console import Console

from loadtest.commands import bench, chaos, demo, growth, load, matrix, serve, target
from loadtest.commands import faults as command
from loadtest.commands.arguments import parse
from loadtest.commands.run import CONTRAST, Setting
from loadtest.commands.terminal import console as console_on_stdout
from loadtest.stack.client import ShopUnreachable
from loadtest.stack.stack import SERVERS, StackError
from servers import embedded
from servers.embedded import EmbeddedError
from servers.errors import explain
from servers.signals import end_on, end_on_hangup_and_sigterm

#: The commands that run rushes.
COMMANDS = {"demo": demo.run, "matrix": matrix.run, "bench": bench.run, "serve": serve.run}

#: Arguments that are fields of Setting under the same name.
SIZES = ("buyers", "stock", "hold_ms", "nodes", "workers", "locust_workers")


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0, 1 for verdicts off, 2 for what did not start, 130
    after Ctrl-C. Whatever happens, what was started is stopped before anything is printed of it."""
    given = parse(arguments, __doc__)
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
    if given.command == "faults":
        chosen = command.Chosen(
            given.fault or (), given.lock or (), given.seed, given.server or SERVERS[0]
        )
        return command.run(chosen, console, verbose=given.verbose)
    if given.command == "chaos":
        seed = secrets.randbits(32) if given.seed is None else given.seed
        return chaos.run(given.minutes or 2.0, seed, console, verbose=given.verbose)
    if given.command == "load":
        return load.run(load.chosen(given), console, verbose=given.verbose)
    if given.command == "target":
        return target.run(target.chosen(given), console, verbose=given.verbose)
    setting = Setting(
        locks=given.lock or (CONTRAST if given.command == "demo" else ()),
        repeat=given.repeat or (11 if given.command == "bench" else 1),
        verbose=given.verbose,
        mine=given.mine or "",
        server=given.server or SERVERS[0],
        **{name: getattr(given, name) for name in SIZES if getattr(given, name) is not None},
    )
    if given.command == "growth":
        return growth.run(growth.plan(given), setting, console)
    return COMMANDS[given.command](setting, console)


if __name__ == "__main__":
    sys.exit(main())
