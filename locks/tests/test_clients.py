"""Clients that share connections, the options of a client, and the rights of its user."""

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.credentials import UsernamePasswordCredentialProvider

from .. import LockBackendError, RedisLock, Release, connection
from ..one_file import OneFileLock
from ..sans_io import protocol
from ..testing.server import Server, eventually
from .waiting import held, run_in_thread, start_waiter, wait_until_queued

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_users_do_not_share_connections(own_server: Server) -> None:
    admin = own_server.client()
    run: Any = admin.execute_command
    run("ACL", "SETUSER", "low", "on", ">pw", "+@all", "~lock:{low}*", "&*")
    RedisLock(admin, "payroll", ttl=10).acquire(1).release()
    provider = UsernamePasswordCredentialProvider("low", "pw")
    low = own_server.client(credential_provider=provider)
    with pytest.raises(LockBackendError, match=r"(?i)permission|no access"):
        RedisLock(low, "payroll", ttl=10).acquire(1)
    RedisLock(low, "low", ttl=10).acquire(1).release()


def test_verifying_client_shares_no_unverified_connection(
    server: Server,
) -> None:
    lax = server.client(ssl=True, ssl_cert_reqs="none")
    strict = server.client(ssl=True, ssl_cert_reqs="required")
    assert RedisLock(lax, "x", ttl=1)._server is not RedisLock(strict, "x", ttl=1)._server


def test_locks_of_one_client_share_one_subscription(client: redis.Redis) -> None:
    first, other = RedisLock(client, "one", ttl=10), RedisLock(client, "other", ttl=10)
    before = set(client.pubsub_channels("lock:wake:*"))  # those of other tests' clients
    with held(first), held(other):
        waiters = [start_waiter(first), start_waiter(other)]
        assert len(set(client.pubsub_channels("lock:wake:*")) - before) == 1
    for waiting_thread in waiters:
        waiting_thread.result(5).release()


def test_lock_connections_have_a_timeout_if_the_client_has_none(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "DEFAULT_TIMEOUT_SECONDS", 0.3)
    lock = RedisLock(own_server.client(socket_timeout=None), "x", ttl=1)
    lock.acquire(1).release()
    own_server.signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(LockBackendError):
        lock.acquire(None)
    assert time.monotonic() - started < 3
    own_server.signal(signal.SIGCONT)


def acl_line() -> list[str]:
    match = re.search(r"`user locks on >PASSWORD (.*?)`", README)
    assert match is not None
    return match[1].split()


def test_acl_line_of_the_readme_has_no_superfluous_command() -> None:
    """The next test shows that no command is missing."""
    commands = set()
    for file in protocol.FOLDER.glob("*.lua"):
        commands |= set(re.findall(r"redis\.call\('(\w+)'", file.read_text()))
    commands = commands - {"pubsub", "spublish"} | {"pubsub|numsub"}  # the latter in a cluster only
    sent = {"evalsha", "eval", "script|load", "subscribe", "ping", "role"}
    assert {rule[1:] for rule in acl_line() if rule[0] == "+"} == commands | sent


@pytest.mark.usefixtures("_frequent_probes")
def test_acl_line_of_the_readme_is_sufficient(own_server: Server) -> None:
    """They allow waiting, probes, hand-overs, renewals, broken subscriptions and lost scripts."""
    admin: Any = own_server.client()
    admin.execute_command("ACL", "SETUSER", "locks", "reset", "on", ">pw", *acl_line())
    client = own_server.client(username="locks", password="pw")
    lock = RedisLock(client, "acl", ttl=0.6)
    with held(lock):
        waiters = [run_in_thread(lambda: lock.acquire(10).release()) for _ in range(3)]
        wait_until_queued(lock, 3)
        pings = admin.info("commandstats")["cmdstat_ping"]["calls"]
        eventually(lambda: admin.info("commandstats")["cmdstat_ping"]["calls"] > pings)
        first = lock.inspect().waiters[0]
        silent_waiter = "lock:wake:nowhere 600 -1 0"
        admin.hset(
            "lock:{acl}:waiting", mapping={first: silent_waiter, "*": "lock:wake:nowhere -1"}
        )
        admin.script_flush()
        admin.delete("lock:{acl}")  # as if its holder were paused
    assert [waiting_thread.result(5) for waiting_thread in waiters] == [Release.RELEASED] * 3
    with held(lock) as lease:
        before = lease.deadline
        admin.script_flush()
        eventually(lambda: lease.deadline > before)
    assert not lock.locked()
    one_file_lock = OneFileLock(client, "acl", ttl=0.6)
    admin.script_flush()
    with one_file_lock.hold(wait=1) as one_file_lease:
        admin.script_flush()
    assert one_file_lease.outcome == "released"
    # redis-py introduces itself with CLIENT commands, and accepts their refusal.
    assert [entry for entry in admin.acl_log() if "client" not in str(entry["object"])] == []
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.get("anything else")
