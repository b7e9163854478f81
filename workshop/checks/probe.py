"""Tries a participant's lock by itself, on a real server.

The lock is taken, given back, and stopped after each of its commands, while another buyer acts or
its process is killed. What counts is what the server and a second contender see.
"""

import datetime
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import redis
from redis.client import Pipeline

from shop.ops.redis import locks_client
from shop.sale import points
from workshop.checks.watch import restart_step_timer
from workshop.kit import Guarded
from workshop.refusal import Refusal

#: Seconds that a lock lives where nothing shall end by itself; where it shall; and how long nobody
#: may be kept out after a death.
LONG = 60.0
TTL = 0.3
RECOVERED_WITHIN = 3 * TTL
#: Seconds by which the clock of a buyer is wrong: well within the life of a lock.
SECONDS_AHEAD = 20.0
#: The point after a command of a lock that is tried.
COMMAND = "own:command"
#: Seconds in which a key that was given an end of a millisecond or so is gone.
AT_ONCE = 0.02
#: Seconds that a thread of the participant's has to give a key its end.
SETTLED_WITHIN = 0.2
#: Commands that take keys away.
DELETES = frozenset({"DEL", "UNLINK", "GETDEL"})


class KeyState(NamedTuple):
    """A key at one moment.

    kind     its type in Redis, or `none`
    content  its value as DUMP has it, or None
    text     its value, to be read
    pttl     its remaining time in milliseconds; -1: no end, -2: no key
    """

    kind: str
    content: bytes | None
    text: str
    pttl: int

    def __str__(self) -> str:
        return f"{self.text}, PTTL {self.pttl}"


class Commands(redis.Redis):
    """The connections of another client, and a point COMMAND after each command: the participant's
    code contains no points; what it sends is seen from outside.

    sent             the names of the commands that were sent
    deleted          the keys that they were to delete
    got_bytes        whether one of them was answered with a value, which is bytes
    loses_a_command  whether the next command is lost on its way to the server
    """

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(connection_pool=client.connection_pool)
        self.auto_close_connection_pool = False
        self.sent: list[str] = []
        self.deleted: list[str] = []
        self.got_bytes = False
        self.loses_a_command = False

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.lose_a_command()
        reply = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self.answered(args, reply)
        return reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """One that counts as one command, and each of its WATCH and reads before MULTI as one."""
        return _Pipeline(self, transaction, shard_hint)

    def lose_a_command(self) -> None:
        """Raise ConnectionError instead of sending a command that shall be lost."""
        if self.loses_a_command:
            self.loses_a_command = False
            raise redis.ConnectionError("this command was lost on its way")

    def answered(self, args: tuple[Any, ...], reply: Any) -> None:
        """A command was answered: stop here if a check asked for that."""
        self.sent.append(str(args[0]))
        self.note_deleted(args)
        replies = reply if isinstance(reply, list) else [reply]
        self.got_bytes |= any(isinstance(value, bytes) for value in replies)
        points.point.send(COMMAND)

    def note_deleted(self, args: tuple[Any, ...]) -> None:
        """Note which keys a command is to delete."""
        if args[0] in DELETES:
            self.deleted += [
                key.decode() if isinstance(key, bytes) else str(key) for key in args[1:]
            ]

    def ran_a_script(self) -> bool:
        """Return whether a script or a function of the server was called."""
        return any(name.startswith(("EVAL", "FCALL")) for name in self.sent)

    def forget_sent(self) -> None:
        """Begin to note anew, before the next call of the participant's."""
        self.sent.clear()
        self.deleted.clear()
        self.got_bytes = False


class _Pipeline(Pipeline):
    def __init__(self, client: Commands, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, shard_hint)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands = [command for command, _ in self.command_stack]
        if commands:
            self._client.lose_a_command()
        replies = super().execute(raise_on_error)
        if commands:
            for command in commands:
                self._client.note_deleted(command)
            self._client.answered(("EXEC",), replies)
        return replies

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        self._client.lose_a_command()
        reply = super().immediate_execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self._client.answered(args, reply)
        return reply


class Probe:
    """A kind of lock, and its own server to try it on.

    module  the participant's file
    plain   a client that makes no points: the server as everybody sees it
    story   what happened so far, one line each
    """

    def __init__(self, kind: Callable[..., Any], module: ModuleType) -> None:
        self.kind = kind
        self.module = module
        self.plain: Any = locks_client()
        self.story: list[str] = []
        self._began = time.monotonic()
        self._names = (f"probe-{os.getpid()}-{number}" for number in count(1))
        self._made_with: dict[int, tuple[str, float]] = {}

    def lock(self, *, ttl: float = LONG) -> Any:
        """A new lock, of a name that no other lock has."""
        restart_step_timer()
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

    def state(self, key: str) -> KeyState:
        """Return what the server has under this key, as everybody sees it."""
        return KeyState(
            kind=self.plain.type(key).decode(),
            content=self.plain.dump(key),
            text=self._text(key),
            pttl=int(self.plain.pttl(key)),
        )

    def pttl_once_it_is_set(self, key: str) -> int:
        """Return a key's PTTL; a thread of its holder's may give the key its end a moment later."""
        until = time.monotonic() + SETTLED_WITHIN
        while (pttl := int(self.plain.pttl(key))) == -1 and time.monotonic() < until:
            time.sleep(AT_ONCE)
        return pttl

    def _text(self, key: str) -> str:
        """Return a key's value, to be read by the participant."""
        match self.plain.type(key):
            case b"none":
                return "nothing"
            case b"string":
                return self.plain.get(key).decode(errors="replace")  # type: ignore[no-any-return]
            case b"set":
                members = self.plain.smembers(key)
            case b"list":
                members = self.plain.lrange(key, 0, -1)
            case b"hash":
                members = [b"%s=%s" % field for field in self.plain.hgetall(key).items()]
            case b"zset":
                members = self.plain.zrange(key, 0, -1)
            case kind:
                return f"a {kind.decode()}"
        return "{" + ", ".join(sorted(member.decode(errors="replace") for member in members)) + "}"

    def first_try(self, lock: Any) -> Refusal | None:
        """Let A take a lock that is free. Return a refusal if try_lock() does not say so."""
        returned = lock.try_lock("a")
        if returned:
            return None
        if not self.plain.exists(lock.key):
            return self.refuse("never-acquires", returned=repr(returned))
        self.says(
            f"A asks: try_lock() returns {returned!r}; {lock.key} is there: {self._text(lock.key)}"
        )
        if returned is None:
            return self.refuse("no-return", function="try_lock")
        if lock.client.got_bytes:
            return self.refuse("bytes-and-str", returned=repr(returned))
        return self.refuse("never-acquires", returned=repr(returned))

    def in_another_process(self, call: Callable[[], Any]) -> None:
        """Make the call in a child process, and wait for its end."""
        self.dies_after(0, call)

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
def clock_ahead(module: ModuleType) -> Iterator[None]:
    """Set this process's wall clock ahead by SECONDS_AHEAD; the server's stays as it is."""
    real_time, real_time_ns, real_datetime = time.time, time.time_ns, datetime.datetime
    ahead = datetime.timedelta(seconds=SECONDS_AHEAD)

    class DatetimeAhead(real_datetime):  # type: ignore[misc, valid-type]
        """A datetime whose now() is ahead."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return super().now(tz) + ahead

        @classmethod
        def utcnow(cls) -> Any:
            return super().now(datetime.UTC).replace(tzinfo=None) + ahead

    replacements: list[tuple[object, object]] = [
        (real_time, lambda: real_time() + SECONDS_AHEAD),
        (real_time_ns, lambda: real_time_ns() + round(SECONDS_AHEAD * 1e9)),
        (real_datetime, DatetimeAhead),
    ]
    with ExitStack() as undo:
        for holder in (time, datetime, module):
            for name, value in list(vars(holder).items()):
                for original, replacement in replacements:
                    if value is original:  # also `from time import time` in the file
                        undo.enter_context(patch.object(holder, name, replacement))
        yield


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
    probe = Probe(buy.kind, module)
    return next(filter(None, (check(probe) for check in checks)), None)
