"""A copy of a PostgreSQL server, and a replica that follows the copy through a proxy."""

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
    """A proxy cuts the replica off before payment 2. Then the primary is killed."""

    def start_copy(folder: str, source: str, *, as_replica: bool = False) -> PostgresCopy:
        server = PostgresCopy(
            tmp_path / folder, runtime_folder=tmp_path, source=source, as_replica=as_replica
        )
        cleanup.callback(server.stop)
        server.start()
        embedded.kill_at_exit(server.pid)
        return server

    def count_payments(server: PostgresCopy) -> int:
        return int(server.run_sql("SELECT count(*) FROM payment", database)[0][0])

    embedded.attach()
    database = f"copied_{os.getpid()}"
    url = embedded.create_database(database)
    [embedded_socket_folder] = parse_qs(urlsplit(url).query)["host"]
    with ExitStack() as cleanup:
        primary = start_copy("primary", make_conninfo(host=embedded_socket_folder))
        primary.run_sql("CREATE TABLE payment (id int)", database)
        replication_proxy = cleanup.enter_context(Proxy(primary.socket))
        source = make_conninfo(host="127.0.0.1", port=replication_proxy.port)
        replica = start_copy("replica", source, as_replica=True)
        primary.run_sql("INSERT INTO payment VALUES (1)", database)
        replica.wait_until_caught_up_with(primary)
        assert count_payments(replica) == 1
        replication_proxy.black_hole()
        primary.run_sql("INSERT INTO payment VALUES (2)", database)
        eventually(lambda: replication_proxy.dropped_bytes, what="the proxy has dropped the commit")
        assert (count_payments(primary), count_payments(replica)) == (2, 1)
        # The shared memory is in the data folder, so a killed server leaves nothing in /dev/shm.
        assert list((primary.data_folder / "pg_dynshmem").iterdir())
        primary.kill()
        replica.promote()
        assert replica.run_sql("SELECT pg_is_in_recovery()") == [(False,)]
        replica.run_sql("INSERT INTO payment VALUES (3)", database)
        assert count_payments(replica) == 2


def test_copy_of_a_missing_server_is_reported(tmp_path: Path) -> None:
    copy = PostgresCopy(tmp_path / "1", runtime_folder=tmp_path, source=f"host={tmp_path}")
    with pytest.raises(EmbeddedError, match=f"made no copy of host={tmp_path}: .*No such file"):
        copy.start()


def test_promotion_that_takes_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = PostgresCopy(
        tmp_path / "data", runtime_folder=tmp_path, source="host=/nowhere", as_replica=True
    )
    # pg_promote() returns False if it has timed out.
    monkeypatch.setattr(replica, "run_sql", lambda _: [(False,)])
    with pytest.raises(EmbeddedError, match="was not promoted within 20 s; see "):
        replica.promote()
