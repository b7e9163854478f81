"""A rush on the example shop mysql_shop.py, with a MariaDB that the test starts."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from examples.targets import __main__ as launcher
from examples.targets.__main__ import HERE, SHOPS
from loadtest.stack import mysql_client
from servers.embedded import ROOT
from servers.loopback import find_free_port
from servers.process import ServerProcess
from servers.tests.running_mariadb import running_mariadb


@pytest.mark.parametrize(
    ("isolation_level", "repaired", "verdict"),
    [
        ("repeatable read", False, "oversold"),
        ("read committed", False, "exact"),
        ("repeatable read", True, "exact"),
    ],
)
def test_isolation_level_decides_whether_the_shop_oversells(
    isolation_level: str,
    repaired: bool,
    verdict: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At REPEATABLE READ, the shop's plain read after its row lock sees an old snapshot.

    repaired  whether the read of the stock itself locks its row, and so sees the current stock
    """
    monkeypatch.setattr(launcher, "VAR", tmp_path)
    shop = SHOPS["mysql"]
    shop.folder.mkdir(parents=True)
    launcher.copy_source(shop, repaired)
    with running_mariadb() as server:
        connection = mysql_client.connect(server.url(), timeout_seconds=10.0)
        # With ON, MariaDB would end a stale read in an error. prepare_mysql() sets this, too.
        connection.query("SET GLOBAL innodb_snapshot_isolation=OFF")
        connection.close()
        shop_environment = {"SHOP_DATABASE": server.url(), "ISOLATION_LEVEL": isolation_level}
        environment = {**os.environ, **shop_environment}
        subprocess.run(
            [sys.executable, "mysql_shop.py"], cwd=shop.folder, env=environment, check=True
        )
        port = find_free_port()
        url = f"http://127.0.0.1:{port}"
        process = ServerProcess("the shop", tmp_path / "log")
        command = [sys.executable, "-m"] + shop.server_arguments.format(port=port).split()
        process.start(command, folder=shop.folder, environment=environment)
        try:
            process.wait_until(lambda: urlopen(url, timeout=10).close() or True, timeout=60)
            options = ["--buyers", "40", "--stock", "20", "--repeat", "1", "--expect", verdict]
            target = HERE / "mysql_target.py"
            completed_rush = subprocess.run(
                [sys.executable, "-m", "loadtest", "target", target, "--host", url, *options],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
            )
        finally:
            process.stop()
    assert completed_rush.returncode == 0, completed_rush.stdout + completed_rush.stderr
