"""The command `serve`: the shop with its page, its admin, and Locust's web UI, until Ctrl-C."""

import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import IO, Any
from urllib.request import urlopen

from rich.console import Console

from loadtest.commands.output import Progress
from loadtest.commands.rushes import RushOptions, choose_database_of_options, run_stack_and_locust
from loadtest.rush.locust.locust_process import LocustProcess
from loadtest.rush.plan import RushPlan
from loadtest.stack.node import run_manage_py
from loadtest.stack.stack import ROOT, Stack, make_child_environment, show_no_progress
from servers import embedded
from servers.embedded import VAR
from servers.loopback import find_free_port, make_runtime_folder
from servers.process import ServerProcess

#: The ports of the shop and of Locust's web UI, unless they are taken.
SHOP_PORT = 8000
LOCUST_PORT = 8089
ADMIN_NAME = "demo"
#: The nodes' SHOP_DEMO_STEP_TIMEOUT, long enough for a class to discuss a step on the page.
STEP_TIMEOUT_SECONDS = "600"
#: Time limit for Locust's web UI to answer after its start.
LOCUST_START_TIMEOUT_SECONDS = 30.0
#: Short, because Locust's web UI has nothing to save.
LOCUST_STOP_TIMEOUT_SECONDS = 2.0
#: The lessons that the page shows, for instance at /?lesson=5.
LESSONS_PATH = ROOT / "workshop" / "lessons.toml"


@contextmanager
def serve_shop(
    rush_options: RushOptions,
    *,
    log: IO[bytes],
    progress: Callable[[str], None] = show_no_progress,
    shop_port: int = 0,
    locust_port: int = 0,
) -> Iterator[tuple[Stack, str, LocustProcess]]:
    """Run the shop and two Locusts while the block lasts.

    One Locust has a web UI. The other one runs the rushes that are started on the shop's page.

    Yields the stack (the shop's nodes and servers), the URL of the web UI, and the Locust process
    of the page. Raises the errors of run_stack_and_locust(), and NotReady if the web UI does not
    start.

    shop_port    the port of the first node; any free port if it is 0 or taken
    locust_port  the port of Locust's web UI; any free port if it is 0 or taken
    """
    variables = {
        "SHOP_DEMO_STEP_TIMEOUT": STEP_TIMEOUT_SECONDS,
        "SHOP_DEMO_LESSONS": str(LESSONS_PATH),
    }
    if rush_options.own_strategy_file:
        variables["SHOP_DEMO_STRATEGIES"] = f"mine={rush_options.own_strategy_file}"
    with (
        tempfile.TemporaryDirectory(prefix="rushes-", dir=make_runtime_folder()) as folder,
        run_stack_and_locust(
            rush_options,
            log=log,
            progress=progress,
            port=shop_port,
            variables=variables | {"SHOP_RUSH_FOLDER": folder},
        ) as (stack, page_locust),
        ExitStack() as exit_stack,
    ):
        hosts = [node.url for node in stack.nodes]
        page_locust.run_rushes_of_page(folder, RushPlan(hosts=hosts, restock_token=stack.token))
        port = find_free_port(locust_port)
        web_ui = ServerProcess("Locust", log)
        exit_stack.callback(web_ui.stop, LOCUST_STOP_TIMEOUT_SECONDS)
        environment = {
            **make_child_environment(),
            "SHOP_RESTOCK_TOKEN": stack.token,
            "PYTHONUTF8": "1",
        }
        arguments = [sys.executable, "-m", "locust"]
        arguments += _make_host_options(stack)
        arguments += ["--web-port", str(port)]
        embedded.kill_at_exit(web_ui.start(arguments, folder=ROOT, environment=environment))
        url = f"http://127.0.0.1:{port}"
        web_ui.wait_until(partial(_require_answer, url), timeout=LOCUST_START_TIMEOUT_SECONDS)
        stack.watched_servers.append(web_ui)
        stack.start_order_consumers()  # the page may choose any lock
        yield stack, url, page_locust


def _require_answer(url: str) -> bool:
    """Return True if a server answers a request to this URL with success, else raise OSError.

    ServerProcess.wait_until() calls this function until it succeeds. At the time limit, it shows
    the last error.
    """
    with urlopen(url, timeout=5):
        return True


def make_admin(stack: Stack) -> str:
    """Create the admin user ADMIN_NAME in this run's own database. Return its random password.

    If the shop uses the database of DATABASE_URL, create no user and return "". Raises StackError.

    The password may be printed: the nodes listen on 127.0.0.1 only, and the database is dropped
    when the run ends.
    """
    if os.environ.get("DATABASE_URL"):
        return ""
    password = secrets.token_urlsafe(9)
    environment = {**stack.nodes[0].environment, "DJANGO_SUPERUSER_PASSWORD": password}
    arguments = ("createsuperuser", "--no-input", "--username", ADMIN_NAME, "--email", "")
    run_manage_py(*arguments, environment=environment, log=stack.log)
    return password


def _make_host_options(stack: Stack) -> list[str]:
    """Return Locust's options for the addresses of this stack's nodes."""
    urls = [node.url for node in stack.nodes]
    options = ["--host", urls[0]]
    if len(urls) > 1:
        options += ["--nodes", ",".join(urls[1:])]
    return options


def make_plain_locust_command(stack: Stack) -> str:
    """Return the command line that runs one rush on this shop with Locust's own program.

    In a rush, many buyers send their purchases at the same instant.
    """
    program = Path(sys.executable).with_name("locust")
    if program.is_relative_to(ROOT):
        program = program.relative_to(ROOT)
    arguments = [str(program), "--headless", "--lock", "redis"] + _make_host_options(stack)
    return f"SHOP_RESTOCK_TOKEN={stack.token} {shlex.join(arguments)}"


def _print_port_change(console: Console, url: str, usual_port: int) -> None:
    """Print a remark if the usual port was taken, so that the URL has another one."""
    port = url.rpartition(":")[2]
    if port != str(usual_port):
        console.print(f"        port {usual_port} is taken, so this is {port}", style="yellow")


def run(console: Console, *, locks: Sequence[str] = (), **options: Any) -> int:
    """Start the shop and Locust, print their addresses, and wait for Ctrl-C. Return 0.

    Raises EmbeddedError if a server does not start, and StackError if a server ends.

    locks    strategies. For each, a link is printed to the page that shows its steps in a purchase
    options  the other fields of RushOptions
    """
    rush_options = choose_database_of_options(RushOptions(locks=locks, **options))
    progress = Progress(console)
    VAR.mkdir(exist_ok=True)
    with (
        Path(VAR / "serve.log").open("wb") as log,
        progress,
        serve_shop(
            rush_options,
            log=log,
            progress=progress,
            shop_port=SHOP_PORT,
            locust_port=LOCUST_PORT,
        ) as (stack, locust_url, _),
    ):
        progress("creating the admin user")
        password = make_admin(stack)
        progress.stop()  # before something else is printed
        _print_addresses(console, stack, locust_url, admin_password=password)
        # The links that the user asked for come last, so that they are not overlooked.
        _print_links_to_steps(console, stack.nodes[0].url, rush_options)
        with suppress(KeyboardInterrupt):
            stack.run_while_alive(Event().wait)  # until Ctrl-C, or until a server ends
    return 0


def _print_addresses(
    console: Console, stack: Stack, locust_url: str, *, admin_password: str
) -> None:
    """Print the addresses of the shop and of Locust's web UI, and a command that runs Locust.

    admin_password  the password of the admin user; empty if make_admin() created none
    """
    urls = [node.url for node in stack.nodes]
    page = urls[0]
    login = "with an admin account of the database in DATABASE_URL"
    if admin_password:
        login = f"user {ADMIN_NAME}, password {admin_password}"
    console.print(f"page    {page}/  (choose a lock, press Start)")
    _print_port_change(console, page, SHOP_PORT)
    console.print(f"admin   {page}/admin/  ({login})", soft_wrap=True)
    console.print(f"Locust  {locust_url}/  (its own web UI, with a drop-down of locks)")
    _print_port_change(console, locust_url, LOCUST_PORT)
    console.print("plain Locust, in another terminal:")
    console.print(f"  {make_plain_locust_command(stack)}", soft_wrap=True)
    if len(urls) > 1:
        console.print(f"more nodes of the shop: {', '.join(urls[1:])}", style="dim")
    console.print("Ctrl-C ends everything", style="dim")


def _print_links_to_steps(console: Console, page: str, rush_options: RushOptions) -> None:
    """Print a link for each strategy of --lock, and for the user's own strategy.

    The link leads to the page of the shop that shows the strategy's steps in a purchase.
    """
    if rush_options.locks or rush_options.own_strategy_file:
        console.print()
    for lock in rush_options.locks:
        console.print(f"steps   {page}/?lock={lock}#steps", soft_wrap=True, style="bold")
    if rush_options.own_strategy_file:
        address = f"{page}/?lock=mine#steps"
        console.print(f"mine    {address}  (your file is reloaded after each save)", style="bold")
