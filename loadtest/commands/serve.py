"""The shop with its page, its admin, and Locust's web UI, left running until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rich.console import Console

from loadtest.commands.run import Progress, Setting, allow_files, require_known
from loadtest.rush.locust_process import Buyers, new_token
from loadtest.stack.manage import manage
from loadtest.stack.stack import ROOT, Stack, StackError
from servers.embedded import VAR
from servers.loopback import free_port

SHOP_PORT = 8000
LOCUST_PORT = 8089
ADMIN = "demo"
#: Seconds that a class may discuss a step; see SHOP_DEMO_STEP_TIMEOUT.
STEP_TIMEOUT = "600"
#: What the page shows at /?lesson=5.
LESSONS = ROOT / "workshop" / "lessons.toml"


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
    allow_files(setting)
    # The port is chosen before the nodes start, for their page; Locust itself starts last, because
    # it asks the shop for its locks.
    locust_port, token = free_port(locust_port), new_token()
    with (
        Stack(
            nodes=setting.nodes,
            workers=setting.workers,
            threads=setting.threads,
            server=setting.server,
            log=log,
            progress=progress,
            port=shop_port,
            environment={
                "LOCUST_URL": f"http://127.0.0.1:{locust_port}",
                "LOCUST_TOKEN": token,
                "LOCUST_TOKEN_FILE": "",
                "SHOP_DEMO_STEP_TIMEOUT": STEP_TIMEOUT,
                "SHOP_DEMO_LESSONS": str(LESSONS),
                **({"SHOP_DEMO_STRATEGIES": f"mine={setting.mine}"} if setting.mine else {}),
            },
        ) as stack,
        Buyers(
            stack, log=log, port=locust_port, token=token, workers=setting.locust_workers
        ) as buyers,
    ):
        if buyers.port != locust_port:
            raise StackError(f"port {locust_port} was taken while starting: start again")
        buyers.wait_until_ready()
        stack.settle()  # the page may choose any lock
        yield stack, buyers


def make_admin(stack: Stack) -> str:
    """Make the admin's user ADMIN in the database of this run. Returns its random password, empty
    where the database is not the run's own. Raises StackError.

    The nodes listen on 127.0.0.1 alone, and the database goes with the run.
    """
    if os.environ.get("DATABASE_URL"):
        return ""
    password = secrets.token_urlsafe(9)
    environment = {**stack.nodes[0].environment, "DJANGO_SUPERUSER_PASSWORD": password}
    words = ("createsuperuser", "--no-input", "--username", ADMIN, "--email", "")
    manage(*words, environment=environment, log=stack.log)
    return password


def plain_locust(stack: Stack) -> str:
    """The command that runs one rush on this stack with plain Locust."""
    first, *others = [node.url for node in stack.nodes]
    locust = Path(sys.executable).with_name("locust")
    shown = locust.relative_to(ROOT) if locust.is_relative_to(ROOT) else locust
    nodes = f" --nodes {','.join(others)}" if others else ""
    return (
        f"SHOP_RESTOCK_TOKEN={stack.token} {shlex.quote(str(shown))} --headless --lock redis "
        f"--host {first}{nodes}"
    )


def run(setting: Setting, console: Console) -> int:
    """Start both, print where they are, wait for Ctrl-C, which is its normal end.

    Raises StackError when a part does not start, or for an unknown lock.
    """
    VAR.mkdir(exist_ok=True)
    with (
        Path(VAR / "serve.log").open("wb") as log,
        Progress(console, verbose=setting.verbose) as progress,
        serving(
            setting,
            log=log,
            progress=progress,
            shop_port=SHOP_PORT,
            locust_port=LOCUST_PORT,
        ) as (stack, buyers),
    ):
        known = [str(one["name"]) for one in stack.shop().strategies()]
        require_known(setting.locks, known, "lock")
        progress("making the admin's user")
        password = make_admin(stack)
        progress.pause()
        page, *others = [node.url for node in stack.nodes]
        login = f"user {ADMIN}, password {password}" if password else "with an account of yours"
        console.print(f"page    {page}/  (choose a lock, press Start)")
        for lock in setting.locks:
            console.print(f"steps   {page}/?lock={lock}#steps", highlight=False, soft_wrap=True)
        if setting.mine:
            console.print(f"mine    {page}/?lock=mine#steps  (read again after each save)")
        console.print(f"admin   {page}/admin/  ({login})", highlight=False, soft_wrap=True)
        console.print(f"Locust  {buyers.url}/  (the same, with its figures and a tab of verdicts)")
        console.print("plain Locust, in another terminal:")
        console.print(f"  {plain_locust(stack)}", highlight=False, soft_wrap=True)
        if others:
            console.print(f"more nodes of the shop: {', '.join(others)}", style="dim")
        console.print("Ctrl-C ends everything", style="dim")
        with suppress(KeyboardInterrupt):
            signal.pause()
    return 0
