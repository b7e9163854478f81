"""The shop with its page, and Locust's web UI, left running until Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from rich.console import Console

from loadtest.commands.run import Progress, Setting
from loadtest.rush.locust_process import Buyers, new_token
from loadtest.stack.stack import Stack, StackError
from servers.embedded import VAR
from servers.ports import free_port

SHOP_PORT = 8000
LOCUST_PORT = 8089


class StackWithPage(Stack):
    """A stack whose page knows where Locust will be, and its token: Locust comes last, it asks the
    shop for the names of the locks."""

    locust_port = 0
    locust_token = ""

    def _environment_of(self, number: int, environment: dict[str, str]) -> dict[str, str]:
        own = super()._environment_of(number, environment)
        return {
            **own,
            "LOCUST_URL": f"http://127.0.0.1:{self.locust_port}",
            "LOCUST_TOKEN": self.locust_token,
            "LOCUST_TOKEN_FILE": "",
        }


@contextmanager
def serving(
    setting: Setting,
    *,
    log: IO[bytes],
    progress: Callable[[str], None] = lambda step: None,
    shop_port: int = 0,
    locust_port: int = 0,
) -> Iterator[tuple[Stack, Buyers]]:
    """The shop and Locust for as long as the block lasts, at these ports where they are free.

    Raises StackError when a part does not start.
    """
    with ExitStack() as everything:
        stack = StackWithPage(
            nodes=setting.nodes,
            workers=setting.workers,
            threads=setting.threads,
            log=log,
            progress=progress,
            port=shop_port,
        )
        stack.locust_port = free_port(locust_port)
        stack.locust_token = new_token()
        everything.enter_context(stack)
        buyers = everything.enter_context(
            Buyers(stack, log=log, port=stack.locust_port, token=stack.locust_token)
        )
        if buyers.port != stack.locust_port:
            raise StackError(f"port {stack.locust_port} was taken while starting: start again")
        buyers.wait_until_ready()
        yield stack, buyers


def run(setting: Setting, console: Console) -> int:
    """Start both, print where they are, wait. Raises StackError when a part does not start."""
    VAR.mkdir(exist_ok=True)
    with ExitStack() as everything:
        log = everything.enter_context(Path(VAR / "serve.log").open("wb"))
        with Progress(console, verbose=setting.verbose) as progress:
            stack, buyers = everything.enter_context(
                serving(
                    setting,
                    log=log,
                    progress=progress,
                    shop_port=SHOP_PORT,
                    locust_port=LOCUST_PORT,
                )
            )
        page, *others = [node.url for node in stack.nodes]
        console.print(f"page    {page}/  (choose a lock, press Start)")
        console.print(f"Locust  {buyers.url}/  (the same, with its figures and a tab of verdicts)")
        if others:
            console.print(f"more nodes of the shop: {', '.join(others)}", style="dim")
        console.print("Ctrl-C ends everything", style="dim")
        signal.pause()
    return 0
