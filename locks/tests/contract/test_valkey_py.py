"""Tests of the locks with clients of valkey-py instead of redis-py."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from ... import LockBackendError, Release, compat
from ...testing.cluster import ClusterServers
from ...testing.server import Server, eventually, find_free_port
from ..waiting import run_program, start_waiter
from .conftest import CLUSTER_LOCK_KINDS
from .lock_factories import AsyncLockFactory, LockFactory, yield_and_close

valkey = pytest.importorskip("valkey", reason="pip install valkey")

PACKAGE_FOLDER = Path(__file__).parents[2]


@pytest.fixture(params=["threads", "asyncio", *CLUSTER_LOCK_KINDS])
def factory(request: pytest.FixtureRequest, server: Server) -> Iterator[LockFactory]:
    """A factory of each kind of lock, with a client of valkey-py. admin_client is of redis-py."""
    package = valkey.asyncio if "asyncio" in request.param else valkey
    admin_class: Any = redis.Redis
    client_class = package.Valkey
    port = server.port
    if "cluster" in request.param:
        cluster: ClusterServers = request.getfixturevalue("cluster")
        client_class = package.ValkeyCluster
        admin_class = redis.RedisCluster
        port = cluster.port
    factory_class: Any = AsyncLockFactory if "asyncio" in request.param else LockFactory
    address = {"host": "127.0.0.1", "port": port}
    yield from yield_and_close(factory_class(admin_class(**address), client_class(**address)))


def test_valkey_py_client_is_accepted(factory: LockFactory) -> None:
    """A lock with this client sends forgotten scripts again, is renewed, and serves a waiter.

    The subscription that wakes the waiter is cut, so the waiter polls.
    """
    lock = factory.make_lock("valkey", ttl=0.9)
    for node_admin in factory.list_node_admins():
        node_admin.script_flush()
    with lock.hold(5) as lease:
        waiter = start_waiter(lock)
        first_deadline = lease.deadline
        eventually(lambda: lease.deadline > first_deadline)  # renewed
        assert lease.owned()
        factory.cut_subscriptions()
    next_lease = waiter.result(5)
    assert (next_lease.fence or 0) > (lease.fence or 0)
    assert next_lease.release() is Release.RELEASED


def test_cause_of_a_backend_error_is_an_exception_of_valkey_py(own_server: Server) -> None:
    """A program with valkey-py can recognize the cause of a LockBackendError.

    The user of the client may run no command, so the acquisition is refused.
    """
    own_server.make_client().execute_command(
        "ACL", "SETUSER", "restricted", "on", ">pw", "-@all", "+hello"
    )
    options: Any = {"port": own_server.port, "username": "restricted", "password": "pw"}
    admin = own_server.make_client()
    for client_class, factory_class in (
        (valkey.Valkey, LockFactory),
        (valkey.asyncio.Valkey, AsyncLockFactory),
    ):
        factory: LockFactory = factory_class(admin, client_class(**options))
        with pytest.raises(LockBackendError) as caught:
            factory.make_lock("valkey").acquire(0)
        assert isinstance(caught.value.__cause__, valkey.exceptions.NoPermissionError)
        factory.close()


def test_compat_lock_raises_valkey_py_errors(server: Server) -> None:
    """A program that used valkey-py's Lock catches the exceptions of that class."""
    client = valkey.Valkey(port=server.port)

    def make_lock(**options: Any) -> Any:
        return client.lock("job", lock_class=compat.Lock, **options)

    with make_lock(timeout=10) as lock:
        assert lock.owned()
        with (
            pytest.raises(valkey.exceptions.LockError, match="Not acquired"),
            make_lock(blocking=False),
        ):
            pass
    with pytest.raises(valkey.exceptions.LockError, match="acquire the lock first"):
        make_lock().release()
    assert lock.acquire()
    client.delete("job")
    with pytest.raises(valkey.exceptions.LockNotOwnedError):
        lock.release()
    # compat.Lock and valkey-py's lock exclude each other.
    with make_lock(timeout=10):
        assert client.lock("job", timeout=10).acquire(blocking=False) is False
    with client.lock("job", timeout=10):
        assert make_lock().acquire(blocking=False) is False
    # With raise_on_release_error=False, which valkey-py's lock() does not accept, the loss in the
    # block is only logged.
    quiet_lock = client.lock("job", lock_class=compat.Lock, timeout=10)
    quiet_lock.raise_on_release_error = False
    with quiet_lock:
        client.delete("job")
    unreachable_lock = valkey.Valkey(port=find_free_port()).lock("job", lock_class=compat.Lock)
    with pytest.raises(valkey.exceptions.ConnectionError):
        unreachable_lock.acquire()
    client.close()


#: Uses each kind of lock that works on a single server. Prints "done" if redis-py is missing.
VALKEY_PROGRAM = """
import asyncio
import valkey, valkey.asyncio
from {locks} import AsyncRedisLock, RedisLock, compat

async def main():
    async with AsyncRedisLock(valkey.asyncio.Valkey(port={port}), "alone", ttl=1).hold(wait=1):
        pass

asyncio.run(main())
with RedisLock(valkey.Valkey(port={port}), "alone", ttl=1).hold(wait=1):
    pass
with compat.Redis(port={port}).lock("alone"):
    pass
try:
    import redis
except ImportError:
    print("done")
"""


def test_locks_work_without_redis_py(server: Server, tmp_path: Path) -> None:
    """The program can import only valkey-py and a copy of this package, named "alone".

    The option -S hides the installed packages.
    """
    ignored = shutil.ignore_patterns("__pycache__", "bench", "tests", "testing")
    shutil.copytree(PACKAGE_FOLDER, tmp_path / "alone", ignore=ignored)
    (tmp_path / "valkey").symlink_to(Path(valkey.__file__).parent)
    program = VALKEY_PROGRAM.format(locks="alone", port=server.port)
    env = {"PYTHONPATH": str(tmp_path)}
    assert run_program(sys.executable, "-S", "-c", program, folder=tmp_path, env=env) == "done\n"
