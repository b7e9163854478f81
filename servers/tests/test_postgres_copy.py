"""A copy of PostgreSQL, and a replica that follows it through a proxy."""

import os
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from psycopg.conninfo import make_conninfo

from servers import embedded
from servers.postgres_copy import PostgresCopy
from servers.proxy.proxy import Proxy
from servers.server_errors import EmbeddedError
from servers.tests.polling import eventually


def test_lagging_replica_lacks_the_last_commits(tmp_path: Path) -> None:
    def start(folder: str, of: str, *, follows: bool = False) -> PostgresCopy:
        server = PostgresCopy(tmp_path / folder, runtime=tmp_path, of=of, follows=follows)
        opened.callback(server.stop)
        server.start()
        embedded.kill_at_exit(server.pid)
        return server

    def paid(server: PostgresCopy) -> int:
        return int(server.sql("SELECT count(*) FROM paid", name)[0][0])

    embedded.attach()
    name = f"copied_{os.getpid()}"
    url = embedded.create_database(name)
    with ExitStack() as opened:
        first = start("1", make_conninfo(host=parse_qs(urlsplit(url).query)["host"][0]))
        first.sql("CREATE TABLE paid (id int)", name)
        replication = opened.enter_context(Proxy(first.socket))
        of = make_conninfo(host="127.0.0.1", port=replication.port)
        second = start("2", of, follows=True)
        first.sql("INSERT INTO paid VALUES (1)", name)
        second.catch_up_with(first)
        assert paid(second) == 1
        replication.black_hole()
        first.sql("INSERT INTO paid VALUES (2)", name)
        eventually(lambda: replication.dropped, what="replication lost something")
        assert (paid(first), paid(second)) == (2, 1)
        # It leaves nothing in /dev/shm: its shared memory is in its folder.
        assert list((first.data / "pg_dynshmem").iterdir())
        first.kill()
        second.promote()
        assert second.sql("SELECT pg_is_in_recovery()") == [(False,)]
        second.sql("INSERT INTO paid VALUES (3)", name)
        assert paid(second) == 2


def test_copy_of_a_missing_server_is_reported(tmp_path: Path) -> None:
    copy = PostgresCopy(tmp_path / "1", runtime=tmp_path, of=f"host={tmp_path}")
    with pytest.raises(EmbeddedError, match=f"made no copy of host={tmp_path}: .*No such file"):
        copy.start()


def test_promotion_that_takes_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = PostgresCopy(tmp_path / "data", runtime=tmp_path, of="host=/nowhere", follows=True)
    monkeypatch.setattr(replica, "sql", lambda _: [(False,)])
    with pytest.raises(EmbeddedError, match="was not promoted within 20 s; see "):
        replica.promote()
