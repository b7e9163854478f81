"""Tests of which locks share their connections, and of the ACL rights that the README documents."""

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
from .waiting import hold_lock, run_in_thread, start_waiter, wait_until_queued

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_users_do_not_share_connections(own_server: Server) -> None:
    """An admin and a user with few rights use locks in one process, but no common connection."""
    admin = own_server.make_client()
    run: Any = admin.execute_command
    run("ACL", "SETUSER", "limited", "on", ">pw", "+@all", "~lock:{allowed}*", "&*")
    RedisLock(admin, "payroll", ttl=10).acquire(1).release()
    provider = UsernamePasswordCredentialProvider("limited", "pw")
    limited_client = own_server.make_client(credential_provider=provider)
    with pytest.raises(LockBackendError, match=r"(?i)permission|no access"):
        RedisLock(limited_client, "payroll", ttl=10).acquire(1)
    RedisLock(limited_client, "allowed", ttl=10).acquire(1).release()


def test_verifying_client_shares_no_unverified_connection(server: Server) -> None:
    """A client that verifies TLS certificates shares no connection with a client that does not."""
    lax_client = server.make_client(ssl=True, ssl_cert_reqs="none")
    strict_client = server.make_client(ssl=True, ssl_cert_reqs="required")
    lax_lock = RedisLock(lax_client, "x", ttl=1)
    strict_lock = RedisLock(strict_client, "x", ttl=1)
    assert lax_lock._connections is not strict_lock._connections


def test_locks_of_one_client_share_one_subscription(client: redis.Redis) -> None:
    """The waiters of two locks with the same client are woken on the same channel."""
    first_lock, second_lock = (RedisLock(client, name, ttl=10) for name in ("first", "second"))
    channels_before = set(client.pubsub_channels("lock:wake:*"))  # of other tests' clients
    with hold_lock(first_lock), hold_lock(second_lock):
        waiters = [start_waiter(first_lock), start_waiter(second_lock)]
        assert len(set(client.pubsub_channels("lock:wake:*")) - channels_before) == 1
    for waiter in waiters:
        waiter.result(5).release()


def test_lock_connections_have_a_timeout_if_the_client_has_none(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has no socket_timeout, and the server is silent.

    An acquisition without a limit on its wait fails after the default timeout of the locks.
    """
    monkeypatch.setattr(connection, "DEFAULT_TIMEOUT_SECONDS", 0.3)
    lock = RedisLock(own_server.make_client(socket_timeout=None), "x", ttl=1)
    lock.acquire(1).release()
    own_server.signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(LockBackendError):
        lock.acquire(None)
    assert time.monotonic() - started < 3
    own_server.signal(signal.SIGCONT)


def read_acl_rules() -> list[str]:
    """Return the ACL rules in the README for the Redis user of the locks."""
    match = re.search(r"`user locks on >PASSWORD (.*?)`", README)
    assert match is not None
    return match[1].split()


def test_acl_line_of_the_readme_has_no_superfluous_command() -> None:
    """Each allowed command is called by a script or sent by a lock.

    test_acl_line_of_the_readme_is_sufficient() shows that no command is missing.
    """
    script_commands = set()
    for file in protocol.LUA_FOLDER.glob("*.lua"):
        script_commands |= set(re.findall(r"redis\.call\('(\w+)'", file.read_text()))
    script_commands.remove("spublish")  # needed only in a cluster
    script_commands.remove("pubsub")  # only its subcommand NUMSUB is allowed
    script_commands.add("pubsub|numsub")
    sent_commands = {"evalsha", "eval", "script|load", "subscribe", "ping", "role"}
    allowed_commands = {rule[1:] for rule in read_acl_rules() if rule[0] == "+"}
    assert allowed_commands == script_commands | sent_commands


def count_pings(client: redis.Redis) -> int:
    """Return how often the server has received PING."""
    return int(client.info("commandstats")["cmdstat_ping"]["calls"])


@pytest.mark.usefixtures("_frequent_probes")
def test_acl_line_of_the_readme_is_sufficient(own_server: Server) -> None:
    """A user with these rules only can wait, probe a subscription, renew, and send the scripts."""
    admin: Any = own_server.make_client()
    admin.execute_command("ACL", "SETUSER", "locks", "reset", "on", ">pw", *read_acl_rules())
    client = own_server.make_client(username="locks", password="pw")
    lock = RedisLock(client, "acl", ttl=0.6)
    with hold_lock(lock):
        waiters = [run_in_thread(lambda: lock.acquire(10).release()) for _ in range(3)]
        wait_until_queued(lock, 3)
        # Wait until the subscription of the waiters has been probed.
        pings_before = count_pings(admin)
        eventually(lambda: count_pings(admin) > pings_before)
        # Make the scripts run the commands with which they skip the waiters of a paused process:
        # set the channel of the holder and of the first waiter to one without a subscriber. The
        # formats of these fields are those of KEYS[3] in hand_over.lua.
        first_token = lock.inspect().waiters[0]
        admin.hset(
            "lock:{acl}:waiting",
            mapping={first_token: "lock:wake:nowhere 600 -1 0", "*": "lock:wake:nowhere -1"},
        )
        admin.script_flush()
        admin.delete("lock:{acl}")
    assert [waiter.result(5) for waiter in waiters] == [Release.RELEASED] * 3
    with hold_lock(lock) as lease:
        first_deadline = lease.deadline
        admin.script_flush()
        eventually(lambda: lease.deadline > first_deadline)
    assert not lock.locked()
    one_file_lock = OneFileLock(client, "acl", ttl=0.6)
    admin.script_flush()
    with one_file_lock.hold(wait=1) as one_file_lease:
        admin.script_flush()
    assert one_file_lease.outcome == "released"
    # No command was refused. (redis-py sends its name by CLIENT SETINFO, and ignores a refusal.)
    assert [entry for entry in admin.acl_log() if "client" not in str(entry["object"])] == []
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.get("anything else")
