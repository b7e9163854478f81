"""Tests a participant's lock without the shop, on a real Redis server.

The checks acquire and release the lock. They interrupt the participant's code after each command
that it sends to Redis. During the interruption another buyer uses the lock, or the process is
killed. The checks judge the lock by the keys on the server, and by whether a second buyer gets it.
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

#: The ttl of locks that must not end during a check.
LONG_TTL_SECONDS = 60.0
LONG_TTL_MS = round(LONG_TTL_SECONDS * 1000)
#: The ttl of locks that must end during a check.
SHORT_TTL_SECONDS = 0.3
#: The bounds of a correct ttl, relative to the requested ttl. They leave room for rounding and for
#: a busy machine.
MIN_TTL_RATIO, MAX_TTL_RATIO = 0.95, 1.05
#: How long a busy machine may take between two commands.
LATENESS_MS = 5_000
#: How often a check repeats a measurement for which a busy machine was too slow.
MAX_TRIES = 10
#: How long other buyers may be refused after the death of a holder with SHORT_TTL_SECONDS.
RECOVERY_TIMEOUT_SECONDS = 3 * SHORT_TTL_SECONDS
#: How far a buyer's wrong clock is ahead.
CLOCK_AHEAD_SECONDS = 20.0
#: The name of the injection point after each command of the tested lock. At an injection point the
#: shop calls a function of the check (shop/sale/points.py). The colon marks a point inside a lock,
#: at which the buyers of a schedule do not stop.
COMMAND_POINT = "own:command"
#: A key that expires within this time counts as about to expire.
ABOUT_TO_EXPIRE_SECONDS = 0.02
#: The pause between two readings of a key's ttl.
TTL_POLL_SECONDS = 0.02
#: How long a thread of the participant's code may take to set the ttl of a new key.
TTL_TIMEOUT_SECONDS = 0.2
#: Commands that delete keys.
DELETING_COMMANDS = frozenset({"DEL", "UNLINK", "GETDEL"})


class KeyState(NamedTuple):
    """The state of a key at one moment.

    redis_type  the key's type in Redis, or `none`
    content     the value as DUMP returns it, or None
    text        the value as text for a message
    pttl        the remaining milliseconds; -1 without a ttl, -2 without a key
    """

    redis_type: str
    content: bytes | None
    text: str
    pttl: int

    def __str__(self) -> str:
        return f"{self.text}, PTTL {self.pttl}"


class RecordingClient(redis.Redis):
    """A Redis client that records its commands, and has an injection point after each of them.

    At an injection point, here COMMAND_POINT, a check can act: for example let another buyer try.
    The participant's code has no injection points, so its client adds them.

    sent_commands       the names of the commands that were sent
    deleted_keys        the keys in the commands that delete keys, whether or not they existed
    has_received_bytes  whether a reply contained bytes
    loses_next_command  whether the next command is lost on its way to the server
    """

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(connection_pool=client.connection_pool)
        self.auto_close_connection_pool = False  # the pool belongs to the other client
        self.sent_commands: list[str] = []
        self.deleted_keys: list[str] = []
        self.has_received_bytes = False
        self.loses_next_command = False

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send and record a command, unless the check wants it to be lost."""
        self.raise_if_command_is_lost()
        reply = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self.record_command(args, reply)
        return reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """Return a pipeline whose commands this client records."""
        return _RecordingPipeline(self, transaction, shard_hint)

    def raise_if_command_is_lost(self) -> None:
        """Raise ConnectionError once if loses_next_command is set, as if the command was lost."""
        if self.loses_next_command:
            self.loses_next_command = False
            raise redis.ConnectionError("this command was lost on its way")

    def record_command(self, args: tuple[Any, ...], reply: Any) -> None:
        """Record a command, and whether its reply contains bytes. Then reach COMMAND_POINT.

        At this injection point a check can act: for example let another buyer try to get the lock.
        """
        self.sent_commands.append(str(args[0]))
        self.record_deleted_keys(args)
        replies = reply if isinstance(reply, list) else [reply]
        self.has_received_bytes |= any(isinstance(value, bytes) for value in replies)
        points.point_reached.send(COMMAND_POINT)

    def record_deleted_keys(self, args: tuple[Any, ...]) -> None:
        """Record the keys that a command deletes, whether or not they existed."""
        if args[0] in DELETING_COMMANDS:
            self.deleted_keys += [
                key.decode() if isinstance(key, bytes) else str(key) for key in args[1:]
            ]

    def has_run_script(self) -> bool:
        """Return whether a script or a function on the server was called."""
        return any(name.startswith(("EVAL", "FCALL")) for name in self.sent_commands)

    def clear_records(self) -> None:
        """Forget all records, before the next call of the participant's code."""
        self.sent_commands.clear()
        self.deleted_keys.clear()
        self.has_received_bytes = False


class _RecordingPipeline(Pipeline):
    """A Redis pipeline whose RecordingClient records the commands.

    The commands that it sends together count as one command, EXEC. A command that it sends
    immediately, such as a GET after WATCH, counts as one, too.
    """

    def __init__(self, client: RecordingClient, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, shard_hint)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send the commands of the pipeline together, and record them as one command, EXEC."""
        commands = [command for command, _ in self.command_stack]
        if commands:  # an empty pipeline sends nothing
            self._client.raise_if_command_is_lost()
        replies = super().execute(raise_on_error)
        if commands:
            for command in commands:
                self._client.record_deleted_keys(command)
            self._client.record_command(("EXEC",), replies)
        return replies

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        """Send and record a command at once. Other commands of a pipeline wait for execute()."""
        self._client.raise_if_command_is_lost()
        reply = super().immediate_execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self._client.record_command(args, reply)
        return reply


class Probe:
    """Makes locks of the participant's class, interrupts their code, and records what happens.

    lock_class    the participant's class
    module        the participant's file
    plain_client  a client of the same server; its commands are not recorded or interrupted
    story         the timeline of the check so far: lines for the participant, each with its time
    """

    def __init__(self, lock_class: Callable[..., Any], module: ModuleType) -> None:
        self.lock_class = lock_class
        self.module = module
        self.plain_client: Any = locks_client()
        self.story: list[str] = []
        self._started_at = time.monotonic()
        self._names = (f"probe-{os.getpid()}-{number}" for number in count(1))
        #: The id of a lock object -> the name and the ttl with which it was made. The participant's
        #: class need not keep these as attributes.
        self._lock_arguments: dict[int, tuple[str, float]] = {}

    def make_lock(self, *, ttl: float = LONG_TTL_SECONDS) -> Any:
        """Return a new lock with a unique name."""
        restart_step_timer()
        name = next(self._names)
        lock = self.lock_class(RecordingClient(self.plain_client), name, ttl=ttl)
        self._lock_arguments[id(lock)] = name, ttl
        return lock

    def make_same_lock(self, lock: Any) -> Any:
        """Return a second object for the same lock, because each purchase makes its own object."""
        name, ttl = self._lock_arguments[id(lock)]
        return self.lock_class(RecordingClient(self.plain_client), name, ttl=ttl)

    def add_to_story(self, text: str) -> None:
        """Add a line to the story, the timeline for the participant.

        The line begins with the seconds since the probe was made.
        """
        self.story.append(f"{time.monotonic() - self._started_at:6.3f} s  {text}")

    def make_refusal(self, code: str, **details: Any) -> Refusal:
        """Return the reason why the lock is not accepted, with the story (the timeline) so far.

        code     the refusal's name in lessons.toml
        details  the values of the placeholders in the refusal's texts in lessons.toml
        """
        return Refusal(code, details, tuple(self.story))

    def read_state(self, key: str) -> KeyState:
        """Return the state of a key on the server."""
        return KeyState(
            redis_type=self.plain_client.type(key).decode(),
            content=self.plain_client.dump(key),
            text=self._describe_value(key),
            pttl=int(self.plain_client.pttl(key)),
        )

    def wait_for_pttl(self, key: str) -> int:
        """Return the remaining milliseconds of a key. Wait up to TTL_TIMEOUT_SECONDS for a ttl.

        The lock may have a thread that sets the ttl after try_lock() has returned. If the key never
        gets a ttl, return -1, as the command PTTL does.
        """
        deadline = time.monotonic() + TTL_TIMEOUT_SECONDS
        while (pttl := int(self.plain_client.pttl(key))) == -1 and time.monotonic() < deadline:
            time.sleep(TTL_POLL_SECONDS)
        return pttl

    def _describe_value(self, key: str) -> str:
        """Return a key's value as text, for a message to the participant."""
        match self.plain_client.type(key):
            case b"none":
                return "nothing"
            case b"string":
                return self.plain_client.get(key).decode(errors="replace")  # type: ignore[no-any-return]
            case b"set":
                members = self.plain_client.smembers(key)
            case b"list":
                members = self.plain_client.lrange(key, 0, -1)
            case b"hash":
                members = [b"%s=%s" % field for field in self.plain_client.hgetall(key).items()]
            case b"zset":
                members = self.plain_client.zrange(key, 0, -1)
            case kind:
                return f"a {kind.decode()}"
        return "{" + ", ".join(sorted(member.decode(errors="replace") for member in members)) + "}"

    def check_first_try(self, lock: Any) -> Refusal | None:
        """Let buyer A try to get a free lock. Return a refusal unless A gets it.

        A gets the lock if try_lock() returns a true value.
        """
        return_value = lock.try_lock("a")
        if return_value:
            return None
        if not self.plain_client.exists(lock.key):
            return self.make_refusal("never-acquires", returned=repr(return_value))
        self.add_to_story(
            f"A tries: try_lock() returns {return_value!r}; "
            f"{lock.key} is there: {self._describe_value(lock.key)}"
        )
        if return_value is None:
            return self.make_refusal("no-return", function="try_lock")
        if lock.client.has_received_bytes:
            return self.make_refusal("bytes-and-str", returned=repr(return_value))
        return self.make_refusal("never-acquires", returned=repr(return_value))

    def check_clock_ahead(self, lock: Any, call: Callable[[], Any], action: str) -> Refusal | None:
        """Return a refusal if the lock's ttl is too long when buyer A's clock is ahead.

        call    lets A set the ttl of the lock to LONG_TTL_SECONDS
        action  what A does in the call, for the story: "A renews its lock"
        """
        with clock_ahead(self.module):
            call()
        pttl = int(self.plain_client.pttl(lock.key))
        if pttl <= MAX_TTL_RATIO * LONG_TTL_MS:
            return None
        self.add_to_story(f"A's clock is {CLOCK_AHEAD_SECONDS:g} s ahead; {action}, PTTL is {pttl}")
        return self.make_refusal(
            "ends-by-own-clock", ahead=CLOCK_AHEAD_SECONDS, pttl=pttl, ttl=LONG_TTL_MS
        )

    def run_in_child(self, call: Callable[[], Any]) -> None:
        """Make the call in a child process, and wait for its end."""
        self.kill_after_command(0, call)  # 0: do not kill the child

    def count_commands(self, call: Callable[[], Any]) -> int:
        """Make a call, and return the number of commands that it sends to Redis."""
        # 0: never interrupt the call
        with interrupt_after_command(0, lambda: None) as sent_commands:
            call()
        return len(sent_commands)

    def interrupt_after_each_command(
        self,
        call: Callable[[Any], object],
        interruption: Callable[[Any, int], object],
        *,
        prepare: Callable[[Any], object] = lambda lock: None,
    ) -> Iterator[tuple[Any, object, dict[str, int]]]:
        """Repeat a call, interrupting it after its first command, then its second, and so on.

        Each repetition uses a new lock. There is no interruption after the last command.

        Yields for each repetition the lock, the return value of the call, and a dict for the texts
        of a refusal. In the dict, `command` is the number of the command after which the call was
        interrupted, and `commands` is the number of all its commands.

        call          calls the participant's code on the lock
        interruption  called at the interruption, with the lock and the number of the last command
        prepare       prepares the lock before the call
        """
        first_lock = self.make_lock()
        prepare(first_lock)
        command_count = self.count_commands(lambda: call(first_lock))
        for number in range(1, command_count):
            lock = self.make_lock()
            prepare(lock)
            with interrupt_after_command(number, partial(interruption, lock, number)):
                return_value = call(lock)
            yield lock, return_value, {"command": number, "commands": command_count}

    def kill_after_command(self, number: int, call: Callable[[], Any]) -> bool:
        """Make the call in a child process, and kill the child after one of its commands.

        Return whether the child was killed. It is not killed if the call sends fewer commands.

        number  the number of the command, from 1; 0: do not kill the child
        """
        child = os.fork()
        if child == 0:
            self.plain_client.connection_pool.reset()  # the parent uses the same sockets
            with interrupt_after_command(number, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                try:
                    call()
                finally:
                    os._exit(0)
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@contextmanager
def clock_ahead(module: ModuleType) -> Iterator[None]:
    """Set this process's wall clock ahead by CLOCK_AHEAD_SECONDS. The server's clock stays right.

    module  the participant's file, which may have imported a function by `from time import time`
    """
    real_time = time.time
    real_time_ns = time.time_ns
    real_datetime = datetime.datetime
    ahead = datetime.timedelta(seconds=CLOCK_AHEAD_SECONDS)

    class DatetimeAhead(real_datetime):  # type: ignore[misc, valid-type]
        """The class `datetime`, whose now() and utcnow() are ahead."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return super().now(tz) + ahead

        @classmethod
        def utcnow(cls) -> Any:
            return super().now(datetime.UTC).replace(tzinfo=None) + ahead

    replacements: list[tuple[object, object]] = [
        (real_time, lambda: real_time() + CLOCK_AHEAD_SECONDS),
        (real_time_ns, lambda: real_time_ns() + round(CLOCK_AHEAD_SECONDS * 1e9)),
        (real_datetime, DatetimeAhead),
    ]
    with ExitStack() as undo:
        for patched_module in (time, datetime, module):
            for name, value in list(vars(patched_module).items()):
                for original, replacement in replacements:
                    if value is original:
                        undo.enter_context(patch.object(patched_module, name, replacement))
        yield


@contextmanager
def interrupt_after_command(number: int, interruption: Callable[[], object]) -> Iterator[list[str]]:
    """Call `interruption` once: after one of the commands that the block sends to Redis.

    Yields a list with an entry for each command so far, except the commands of `interruption`.

    number  the number of the command, from 1; if it is 0, `interruption` is never called
    """
    sent_commands: list[str] = []
    is_interrupting = False

    def count_and_interrupt(point: str, details: Mapping[str, object]) -> None:
        nonlocal is_interrupting
        if is_interrupting or point != COMMAND_POINT:
            return
        sent_commands.append(point)
        if len(sent_commands) == number:
            is_interrupting = True
            try:
                interruption()
            finally:
                is_interrupting = False

    with points.use_probe(count_and_interrupt):
        yield sent_commands


def run_checks(module: ModuleType, *checks: Callable[[Probe], Refusal | None]) -> Refusal | None:
    """Run these checks on the lock of the participant's file, and return the first refusal.

    A refusal is the reason why the lock is not accepted. Return None if it passes all checks. The
    file must define `buy = guarded(LOCK_CLASS)`; otherwise it is refused without a check.
    """
    buy = getattr(module, "buy", None)
    if not isinstance(buy, Guarded):
        return Refusal("not-guarded", {"file": Path(str(module.__file__)).name})
    probe = Probe(buy.lock_class, module)
    for check in checks:
        if refusal := check(probe):
            return refusal
    return None
