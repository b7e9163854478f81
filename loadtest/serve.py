"""The shop and Locust's web UI, left running until Ctrl-C."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from loadtest.buyers import Buyers
from loadtest.demo import Progress, Setting
from loadtest.stack import Stack
from shop.embedded import VAR

SHOP_PORT = 8000
LOCUST_PORT = 8089


def run(setting: Setting, console: Console) -> int:
    """Start both, print where they are, wait. Raises StackError when a part does not start."""
    VAR.mkdir(exist_ok=True)
    with ExitStack() as everything:
        log = everything.enter_context(Path(VAR / "serve.log").open("wb"))
        with Progress(console, verbose=setting.verbose) as progress:
            stack = everything.enter_context(
                Stack(
                    nodes=setting.nodes,
                    workers=setting.workers,
                    threads=setting.threads,
                    log=log,
                    progress=progress,
                    port=SHOP_PORT,
                )
            )
            buyers = everything.enter_context(Buyers(stack, log=log, port=LOCUST_PORT))
            buyers.wait_until_ready()
        console.print(f"shop    {', '.join(node.url for node in stack.nodes)}")
        console.print(f"Locust  {buyers.url}  (choose a lock, press Start)")
        console.print("Ctrl-C ends both", style="dim")
        signal.pause()
    return 0
