"""Where a target counts, and which machine may be rushed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from loadtest.target import TargetError, ask, sql
from loadtest.target.hosts import is_loopback, require_permission


def test_rows_are_counted_in_sqlite(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop")) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER)")
    dsn = f"sqlite:///{tmp_path}/shop"
    assert sql(dsn, "INSERT INTO orders VALUES (?)", 7) == []
    assert sql(dsn, "SELECT id FROM orders") == [(7,)]
    with pytest.raises(TargetError, match=r"no such table: other\. Query: SELECT"):
        sql(dsn, "SELECT 1 FROM other")


def test_a_wrong_dsn_is_refused_and_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="unable to open"):
        sql(f"sqlite:///{tmp_path}/other", "SELECT 1")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TargetError, match="the database mysql is not known here"):
        sql("mysql://x/y", "SELECT 1")
    with pytest.raises(TargetError, match="the database says"):
        sql("postgresql://nobody@127.0.0.1:9/none", "SELECT 1")


def test_a_shop_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(TargetError, match=r"no shop answers at http://127\.0\.0\.1:9/x .*start it"):
        ask("http://127.0.0.1:9/x")


# --- whom it may be pointed at -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_this_machine"),
    [
        *((host, True) for host in ("127.0.0.1", "127.1.2.3", "localhost", "::1")),
        *((host, False) for host in ("192.0.2.1", "0.0.0.0", "no-such-name.invalid", "::2")),
    ],
)
def test_only_this_machine_may_be_rushed(host: str, is_this_machine: bool) -> None:
    assert is_loopback(host) == is_this_machine


def test_another_machine_is_rushed_with_a_yes_for_its_name_alone() -> None:
    url = "https://192.0.2.1:8443/shop"
    with pytest.raises(
        TargetError, match=r"is not this machine\. 200 .* --i-may-load 192\.0\.2\.1"
    ):
        require_permission(url, "", buyers=200)
    with pytest.raises(TargetError, match=r"--i-may-load names shop\.example"):
        require_permission(url, "shop.example", buyers=200)
    assert "200 buyers will rush 192.0.2.1" in require_permission(url, "192.0.2.1", buyers=200)
    assert require_permission("http://127.0.0.1:8001", "", buyers=200) == ""


@pytest.mark.parametrize("url", ["127.0.0.1:8001", "", "ftp://127.0.0.1", "shop"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(TargetError, match="is no address of a shop"):
        require_permission(url, "", buyers=1)
