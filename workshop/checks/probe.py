"""Tries a participant's lock by itself, on a real server.

The lock is taken, given back, and stopped after each of its commands, while somebody else acts or
its process is killed. What counts is what the server and a second contender see.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import redis
from redis.client import Pipeline

from shop.ops.redis import locks_client
from shop.sale import points
from workshop.checks.watch import alive
from workshop.kit import Guarded
from workshop.refusal import Refusal

#: Seconds that a lock lives where nothing shall end by itself; where it shall; and how long nobody
#: may be kept out after a death.
LONG = 60.0
TTL = 0.3
RECOVERED_WITHIN = 3 * TTL
#: The point after a command of a lock that is tried.
COMMAND = "own:command"


class Commands(redis.Redis):
    """The connections of another client, and a point COMMAND after each command: the participant's
    code contains no points; what it sends is seen from outside.

    sent  the names of the commands that were sent
    """

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(connection_pool=client.connection_pool)
        self.auto_close_connection_pool = False
        self.sent: list[str] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        reply = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self.answered(args)
        return reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """One that counts as one command, and each of its WATCH and reads before MULTI as one."""
        return _Pipeline(self, transaction, shard_hint)

    def answered(self, args: tuple[Any, ...]) -> None:
        """A command was answered: stop here if somebody asked for that."""
        self.sent.append(str(args[0]))
        points.point(COMMAND)


class _Pipeline(Pipeline):
    def __init__(self, client: Commands, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, shard_hint)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        there = bool(self.command_stack)
        replies = super().execute(raise_on_error)
        if there:
            self._client.answered(("EXEC",))
        return replies

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        reply = super().immediate_execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self._client.answered(args)
        return reply


class Probe:
    """A kind of lock, and a server of its own to try it on.

    plain  a client that makes no points: the server as everybody sees it
    story  what happened so far, one line each
    """

    def __init__(self, kind: Callable[..., Any]) -> None:
        self.kind = kind
        self.plain: Any = locks_client()
        self.story: list[str] = []
        self._began = time.monotonic()
        self._names = (f"probe-{os.getpid()}-{number}" for number in count(1))
        self._made_with: dict[int, tuple[str, float]] = {}

    def lock(self, *, ttl: float = LONG) -> Any:
        """A new lock, of a name that no other lock has."""
        alive()
        name = next(self._names)
        lock = self.kind(Commands(self.plain), name, ttl=ttl)
        self._made_with[id(lock)] = name, ttl  # what it has made of them is its own
        return lock

    def again(self, lock: Any) -> Any:
        """Another object for the same lock, as each purchase makes one."""
        name, ttl = self._made_with[id(lock)]
        return self.kind(Commands(self.plain), name, ttl=ttl)

    def says(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{time.monotonic() - self._began:6.3f} s  {text}")

    def refuse(self, code: str, **facts: Any) -> Refusal:
        """A refusal with the story so far."""
        return Refusal(code, facts, tuple(self.story))

    def commands_of(self, call: Callable[[], Any]) -> int:
        """The number of commands that this call sends."""
        with at_command(0, lambda: None) as sent:
            call()
        return len(sent)

    def in_between(
        self,
        call: Callable[[Any], object],
        happens: Callable[[Any, int], object],
        *,
        begins: Callable[[Any], object] = lambda lock: None,
    ) -> Iterator[tuple[Any, object, dict[str, int]]]:
        """For each command of a call but the last: the call on a new lock that `begins` so, during
        which something `happens` to that lock after the command. Gives the lock, what the call has
        returned, and the facts `command` and `commands`."""
        begins(counted := self.lock())
        commands = self.commands_of(lambda: call(counted))
        for number in range(1, commands):
            begins(lock := self.lock())
            with at_command(number, partial(happens, lock, number)):
                returned = call(lock)
            yield lock, returned, {"command": number, "commands": commands}

    def dies_after(self, command: int, call: Callable[[], Any]) -> bool:
        """Make the call in a child that is killed by SIGKILL after its n-th command. Returns
        whether it came that far."""
        child = os.fork()
        if child == 0:
            self.plain.connection_pool.reset()
            with at_command(command, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                try:
                    call()
                finally:
                    os._exit(0)
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@contextmanager
def at_command(number: int, happens: Callable[[], object]) -> Iterator[list[str]]:
    """`happens` after the n-th command that is sent inside the block, once; 0: never. Gives the
    points of these commands; of what is sent while it happens there are none."""
    sent: list[str] = []
    happening = False

    def at(name: str, facts: Mapping[str, object]) -> None:
        nonlocal happening
        if happening or name != COMMAND:
            return
        sent.append(name)
        if len(sent) == number:
            happening = True
            try:
                happens()
            finally:
                happening = False

    with points.installed(at):
        yield sent


def probed(module: ModuleType, *checks: Callable[[Probe], Refusal | None]) -> Refusal | None:
    """The first refusal of the lock that this file sells under, or None."""
    buy = getattr(module, "buy", None)
    if not isinstance(buy, Guarded):
        return Refusal("not-guarded", {"file": Path(str(module.__file__)).name})
    probe = Probe(buy.kind)
    return next(filter(None, (check(probe) for check in checks)), None)
