"""The command `serve`, which starts the shop, its page and Locust until Ctrl-C is pressed.

The tests cover the addresses that it prints, its database, and how it ends.
"""

import json
import os
import re
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast
from urllib.request import urlopen

import psutil
import pytest

from loadtest.commands import serve
from loadtest.stack.stack import Stack
from loadtest.tests.checkout import assert_nothing_is_left, make_user_environment, start_python


def read_until_ready(serve_process: subprocess.Popen[str]) -> str:
    """Wait until `serve` is ready, and return its output. The last line then mentions Ctrl-C."""
    assert serve_process.stdout is not None
    output = ""
    for line in serve_process.stdout:
        output += line
        if "Ctrl-C" in line:
            return output
    pytest.fail(f"serve ended: {output}")


def test_serve_prints_addresses_and_ends_cleanly_on_ctrl_c(clone: Path) -> None:
    """Each printed address answers. The printed command runs Locust, whose rush is exact."""
    serve_process = start_python(clone, "-m", "loadtest", "serve")
    output = read_until_ready(serve_process)
    addresses = dict(
        re.findall(r"^(page|admin|Locust)  +(http://127\.0\.0\.1:\d+)/", output, re.MULTILINE)
    )
    (second_node,) = re.findall(r"more nodes of the shop: (\S+)", output)
    for url in (
        f"{addresses['page']}/",
        f"{addresses['Locust']}/",
        f"{second_node}/healthz",
    ):
        with urlopen(url, timeout=10) as answer:
            assert answer.status == 200

    assert re.search(r"\(user demo, password \S+\)", output)
    (rush_command,) = re.findall(r"^  (SHOP_RESTOCK_TOKEN=.+)$", output, re.MULTILINE)
    rush = subprocess.run(
        f"{rush_command} --users 60 --stock 30",
        shell=True,
        cwd=clone,
        env=make_user_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert rush.returncode == 0, rush.stderr[-2000:]
    assert "EXACT [redis]: 30 orders for 30 units" in rush.stderr

    os.killpg(serve_process.pid, signal.SIGINT)
    serve_process.communicate(timeout=30)
    assert serve_process.returncode == 0, "serve is meant to be ended by Ctrl-C"
    assert_nothing_is_left(clone)


def test_serve_uses_other_ports_if_its_own_are_taken(clone: Path) -> None:
    """The test listens on the usual ports of `serve`, unless another program does so already."""
    with ExitStack() as listeners:
        for port in (serve.SHOP_PORT, serve.LOCUST_PORT):
            with suppress(OSError):  # raised if another program listens on the port
                listeners.enter_context(socket.create_server(("127.0.0.1", port)))
        serve_process = start_python(clone, "-m", "loadtest", "serve")
        output = read_until_ready(serve_process)
        os.killpg(serve_process.pid, signal.SIGINT)
        serve_process.communicate(timeout=30)
    for name, port in (("page", serve.SHOP_PORT), ("Locust", serve.LOCUST_PORT)):
        (chosen_port,) = re.findall(rf"^{name} +http://127.0.0.1:(\d+)/", output, re.MULTILINE)
        assert int(chosen_port) != port
        assert f"port {port} is taken, so this is {chosen_port}" in output
    assert_nothing_is_left(clone)


def test_serve_runs_on_the_chosen_database(clone: Path) -> None:
    """The page /readyz of the shop lists the database that the shop uses."""
    serve_process = start_python(clone, "-m", "loadtest", "serve", "--database", "sqlite")
    output = read_until_ready(serve_process)
    (page,) = re.findall(r"^page +(http://127\.0\.0\.1:\d+)/", output, re.MULTILINE)
    with urlopen(f"{page}/readyz", timeout=10) as answer:
        names = [part["name"] for part in json.load(answer)["parts"]]
    os.killpg(serve_process.pid, signal.SIGINT)
    serve_process.communicate(timeout=30)
    assert any(name.startswith("SQLite") for name in names), names
    assert_nothing_is_left(clone)


def test_serve_ends_if_the_locust_for_its_page_dies(clone: Path) -> None:
    """The test kills Locust, which runs the rushes that visitors start on the page."""
    serve_process = start_python(clone, "-m", "loadtest", "serve")
    read_until_ready(serve_process)
    for child in psutil.Process(serve_process.pid).children():
        if "loadtest.locust_child" in child.cmdline():
            child.kill()
    output, _ = serve_process.communicate(timeout=60)
    assert serve_process.returncode == 2
    assert "Locust ended" in output
    assert_nothing_is_left(clone)


def test_no_admin_is_created_in_an_external_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """If DATABASE_URL is set, make_admin() creates no user and returns no password."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://db.example/shop")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a user was created"))
    unused_stack = cast(Stack, None)
    assert serve.make_admin(unused_stack) == ""
