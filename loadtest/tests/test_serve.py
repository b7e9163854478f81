"""The command `serve`: the addresses that it prints, its database, and its end."""

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
from loadtest.tests.checkout import assert_nothing_is_left, start_python, user_environment


def read_until_ready(serving: subprocess.Popen[str]) -> str:
    """Return the output of the command up to its line about Ctrl-C, the last one."""
    assert serving.stdout is not None
    printed = ""
    for line in serving.stdout:
        printed += line
        if "Ctrl-C" in line:
            return printed
    pytest.fail(f"serve ended: {printed}")


def test_serve_prints_addresses_and_ends_cleanly_on_ctrl_c(clone: Path) -> None:
    """The command for plain Locust that it prints makes an exact rush."""
    serving = start_python(clone, "-m", "loadtest", "serve")
    printed = read_until_ready(serving)
    addresses = dict(
        re.findall(r"^(page|admin|Locust)  +(http://127\.0\.0\.1:\d+)/", printed, re.MULTILINE)
    )
    (second_node,) = re.findall(r"more nodes of the shop: (\S+)", printed)
    for url in (
        f"{addresses['page']}/",
        f"{addresses['Locust']}/",
        f"{second_node}/healthz",
    ):
        with urlopen(url, timeout=10) as answer:
            assert answer.status == 200

    assert re.search(r"\(user demo, password \S+\)", printed)
    (rush_command,) = re.findall(r"^  (SHOP_RESTOCK_TOKEN=.+)$", printed, re.MULTILINE)
    rush = subprocess.run(
        f"{rush_command} --users 60 --stock 30",
        shell=True,
        cwd=clone,
        env=user_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert rush.returncode == 0, rush.stderr[-2000:]
    assert "EXACT [redis]: 30 orders for 30 units" in rush.stderr

    os.killpg(serving.pid, signal.SIGINT)
    serving.communicate(timeout=30)
    assert serving.returncode == 0, "serve is meant to be ended by Ctrl-C"
    assert_nothing_is_left(clone)


def test_serve_names_the_ports_that_were_taken(clone: Path) -> None:
    with ExitStack() as listeners:
        for port in serve.PORTS:
            with suppress(OSError):  # another program has it already
                listeners.enter_context(socket.create_server(("127.0.0.1", port)))
        serving = start_python(clone, "-m", "loadtest", "serve")
        printed = read_until_ready(serving)
        os.killpg(serving.pid, signal.SIGINT)
        serving.communicate(timeout=30)
    for name, port in zip(("page", "Locust"), serve.PORTS, strict=True):
        (chosen_port,) = re.findall(rf"^{name} +http://127.0.0.1:(\d+)/", printed, re.MULTILINE)
        assert int(chosen_port) != port
        assert f"port {port} is taken, so this is {chosen_port}" in printed
    assert_nothing_is_left(clone)


def test_serve_runs_on_the_chosen_database(clone: Path) -> None:
    serving = start_python(clone, "-m", "loadtest", "serve", "--database", "sqlite")
    printed = read_until_ready(serving)
    (page,) = re.findall(r"^page +(http://127\.0\.0\.1:\d+)/", printed, re.MULTILINE)
    with urlopen(f"{page}/readyz", timeout=10) as answer:
        names = [part["name"] for part in json.load(answer)["parts"]]
    os.killpg(serving.pid, signal.SIGINT)
    serving.communicate(timeout=30)
    assert any(name.startswith("SQLite") for name in names), names
    assert_nothing_is_left(clone)


def test_serve_ends_if_the_locust_for_its_page_dies(clone: Path) -> None:
    serving = start_python(clone, "-m", "loadtest", "serve")
    read_until_ready(serving)
    for child in psutil.Process(serving.pid).children():
        if "loadtest.locust_child" in child.cmdline():
            child.kill()
    printed, _ = serving.communicate(timeout=60)
    assert serving.returncode == 2
    assert "Locust ended" in printed
    assert_nothing_is_left(clone)


def test_no_admin_is_created_in_an_external_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://somebody.elses/shop")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a user was made"))
    assert serve.make_admin(cast(Stack, None)) == ""
