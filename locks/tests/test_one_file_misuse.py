"""Tests of the clients and arguments that OneFileLock refuses, and of unusual uses of it."""

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from ..one_file import LockLost, OneFileLock


@pytest.mark.parametrize(
    "make_client",
    [
        redis.asyncio.Redis,
        lambda: redis.asyncio.Redis().pipeline(),
        lambda: redis.Redis().pipeline(),
    ],
    ids=["asyncio", "asyncio pipeline", "pipeline"],
)
def test_asynchronous_client_or_pipeline_is_refused(make_client: Callable[[], Any]) -> None:
    """With such a client no command would be executed when OneFileLock calls it."""
    with pytest.raises(TypeError, match=r"must be a redis\.Redis"):
        OneFileLock(make_client(), "x", ttl=1)


def test_reply_without_a_fence_is_refused() -> None:
    """The client only collects commands, as a pipeline does, so its scripts return no fence.

    The constructor of OneFileLock refuses a pipeline, but does not recognize this client.
    """

    class CollectingClient:
        def execute_command(self) -> None: ...

        def register_script(self, script: str) -> Callable[..., object]:
            return lambda *_: object()

    with pytest.raises(TypeError, match="instead of an integer"):
        OneFileLock(CollectingClient(), "x", ttl=1).hold(wait=0).__enter__()


async def coroutine_function() -> None: ...


def generator_function() -> Iterator[int]:
    yield 1


async def async_generator_function() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "function", [coroutine_function, generator_function, async_generator_function]
)
def test_block_cannot_be_used_as_a_decorator(
    client: redis.Redis, function: Callable[..., Any]
) -> None:
    """A call of a coroutine or generator function returns before the body of the function has run.

    So a decorator would release the lock too early.
    """
    lock = OneFileLock(client, "x", ttl=1)
    with pytest.raises(TypeError, match="not callable"):
        lock.hold(wait=1)(function)  # type: ignore[operator]


@pytest.mark.parametrize("name", ["", None, 5, b"x"])
def test_invalid_name_is_refused(client: redis.Redis, name: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="name"):
        OneFileLock(client, name, ttl=1)


@pytest.mark.parametrize("wait", ["5", -1, float("nan")])
def test_wait_that_is_not_a_duration_is_refused(client: redis.Redis, wait: Any) -> None:
    """hold() refuses such a wait before it tries to acquire the lock."""
    lock = OneFileLock(client, "x", ttl=1)
    with pytest.raises((TypeError, ValueError)):
        lock.hold(wait=wait)


def test_block_cannot_be_entered_twice(client: redis.Redis) -> None:
    """The object that hold() returns is for one `with` statement.

    If two threads could share it, they would release each other's lock.
    """
    block = OneFileLock(client, "x", ttl=1).hold(wait=1)
    with block, pytest.raises(RuntimeError, match="anew"), block:
        pass


def test_encoding_of_the_client_does_not_change_the_key(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients with the encodings latin-1 and UTF-8 lock the same key.

    redis-py packs commands with its encoding only if hiredis is not installed, as pretended here.
    """
    monkeypatch.setattr(redis.connection, "HIREDIS_AVAILABLE", False)
    with redis.Redis(port=read_port(client), encoding="latin-1") as other_client:
        lock = OneFileLock(client, "täst%", ttl=1)
        with OneFileLock(other_client, "täst%", ttl=1).hold(wait=1):
            assert client.exists("lock:{täst%25}")
            with pytest.raises(TimeoutError), lock.hold(wait=0):
                pass


def read_port(client: redis.Redis) -> int:
    port: int = client.connection_pool.connection_kwargs["port"]
    return port


def test_forked_child_has_no_lease(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """check() raises LockLost in any other process than the one with the lock."""
    with OneFileLock(client, "x", ttl=1).hold(wait=1) as lease:
        monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a forked child
        with pytest.raises(LockLost):
            lease.check()
        monkeypatch.undo()
    assert lease.outcome == "released"


def test_lock_is_held_without_a_renewing_thread(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program uses a lock in an atexit function, which cannot start a thread since Python 3.12.

    The block holds the lock, but the lease is not renewed.
    """

    def refuse_to_start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse_to_start)
    with OneFileLock(client, "x", ttl=1).hold(wait=1) as lease:
        lease.check()
    assert lease.outcome == "released"
    assert "no thread for _renew" in caplog.text
