"""The commands for the server and the meaning of its replies, without I/O, for all clients.

Each script is a file in lua/ that documents its KEYS, ARGV and reply. Errors are distinguished by
the names of their classes, because redis-py and valkey-py use the same names.
"""

import math
import os
import re
import secrets
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple, Self

#: Default of the seconds for which the last fence is remembered: longer than a stale holder can be
#: paused.
DEFAULT_FENCE_TTL_SECONDS = 7 * 24 * 3600.0

#: The token with which release.lua releases the lock of any holder. No other token equals it.
ANY_HOLDER = b"*"

# What acquire.lua does with the caller if the lock is taken.
STAY = b"stay"  # keep the caller where it is: in the queue, or outside of it
QUEUE = b"queue"  # put the caller into the queue
LEAVE = b"leave"  # remove the caller from the queue

# How renew.lua uses its milliseconds.
LEAST = b"least"  # the lease lasts at least this long from now on
ADD = b"add"  # the lease lasts this much longer than before
SET = b"set"  # the lease lasts exactly this long from now on


def derive_keys(name: str, key: bytes | None = None) -> tuple[bytes, ...]:
    """Return a lock's four Redis keys, in the order of KEYS in the scripts.

    They are the lock, the places of the waiters in the queue, the data of the waiters, and the last
    fence. The name is the hash tag, so all four share a cluster slot. Braces in the name are
    escaped, so that no name can end the tag early. For example, the lock `product:42` has the key
    `lock:{product:42}`.

    Args:
        name: The name of the lock.
        key: The key of the lock itself, for example one that another program locks. None: it is
            derived from the name. The other three keys are derived from `key`. They differ from
            those of any other key, and share a cluster slot with `key`, unless `key` contains a `}`
            and no hash tag. If `key` has the form `lock:{NAME}`, the four keys are those of the
            lock with this name.
    """
    if key is None:
        lock = b"lock:{%b}" % _escape(name.encode())
        prefix = lock
    elif key == b"lock:{%b}" % get_hashed_part(key):  # as if derived from a name
        lock = key
        prefix = key
    else:
        lock = key
        prefix = b"lock:{%b}:key:%b" % (get_hashed_part(key), _escape(key))
    return lock, prefix + b":places", prefix + b":waiting", prefix + b":fence"


def get_hashed_part(key: bytes) -> bytes:
    """Return the part of a key that is hashed to its slot: the hash tag, or else the whole key."""
    tag = re.match(rb"[^{]*\{([^}]+)\}", key)
    return tag[1] if tag else key


def _escape(name: bytes) -> bytes:
    """Return the name without braces, which delimit hash tags, as URLs escape them."""
    return name.replace(b"%", b"%25").replace(b"{", b"%7B").replace(b"}", b"%7D")


def build_renew_args(
    token: str | bytes,
    seconds: float,
    fence_ttl: float,
    mode: bytes = LEAST,
    heir: str | bytes | None = None,
) -> tuple[str | bytes | int, ...]:
    """Return the arguments of renew.lua.

    Args:
        token: The token that holds the lock.
        seconds: A number of seconds; `mode` says what it means.
        fence_ttl: Seconds for which the last fence is remembered after the lease.
        mode: LEAST: the lease lasts at least `seconds` from now on. ADD: it lasts that much longer
            than before. SET: it lasts exactly `seconds` from now on.
        heir: The token that holds the lock afterwards. None: the same token.
    """
    return token, to_milliseconds(seconds), mode, heir or token, to_milliseconds(fence_ttl)


def make_channel(tag: bytes = b"") -> bytes:
    """Return a new, unique channel for the waiters of this process.

    Args:
        tag: In a cluster, a hash tag of the lock's slot, with its braces. hand_over.lua recognizes
            a sharded channel by the braces.
    """
    return b"lock:wake:%b%d-%b" % (tag, os.getpid(), secrets.token_hex(8).encode())


def to_milliseconds(seconds: float) -> int:
    """Return the seconds in whole milliseconds, at least 1, because PX 0 is an error."""
    return max(1, round(seconds * 1000))


def compute_drift(seconds: float) -> float:
    """Return how far two clocks may drift apart in this time, by the formula of Redlock."""
    return 0.01 * seconds + 0.002


def build_queue_args(
    channel: bytes, wait: float, renewed_for: float, place: int
) -> tuple[bytes, bytes, int, int, int]:
    """Return the arguments of acquire.lua that put a waiter into the queue.

    Args:
        channel: The channel on which to wake the waiter.
        wait: Seconds for which the waiter will wait, or inf.
        renewed_for: Seconds for which its lease would be renewed, or inf.
        place: The waiter's place in the queue, from the previous reply; 0 if it is new.
    """
    return (
        QUEUE,
        channel,
        _milliseconds_or_unlimited(wait),
        _milliseconds_or_unlimited(renewed_for),
        place,
    )


def _milliseconds_or_unlimited(seconds: float) -> int:
    """Return the seconds in milliseconds, rounded up, or -1 for infinity, as the scripts expect."""
    return -1 if seconds == math.inf else max(0, math.ceil(seconds * 1000))


class WireReply(NamedTuple):
    """A reply of acquire.lua.

    Attributes:
        sent_at: Time of our clock just before the command was sent.
        clock: Time of the server's clock when the script ran, in microseconds.
        fence: The fence if the lock is ours, else None.
        lease_seconds_left: Seconds until the holder's lease ends; negative for a key without an
            expiry. At most 0.1 if the holder's release might wake no waiter: see acquire.lua.
        place: The place in the queue, for the next command; 0 outside the queue.
        was_removed: Whether the waiter had been removed from the queue, so that newcomers may have
            had the lock meanwhile.
    """

    sent_at: float
    clock: int
    fence: int | None
    lease_seconds_left: float
    place: int = 0
    was_removed: bool = False

    @classmethod
    def parse(cls, sent_at: float, reply: Any) -> Self:
        """Parse the reply of acquire.lua.

        Args:
            sent_at: Time of our clock just before the command was sent.
            reply: The reply.
        """
        if reply[0] == 1:  # the lock is ours
            _, fence, clock = reply
            return cls(sent_at, clock, fence, 0.0)
        _, left_milliseconds, clock, place, was_removed = reply
        return cls(sent_at, clock, None, left_milliseconds / 1000, place, was_removed == 1)

    def compute_deadline(self, ttl: float) -> float:
        """Return the time, in seconds of our clock, until which a granted lease can be trusted."""
        return self.sent_at + ttl - compute_drift(ttl)


class Wake(NamedTuple):
    """A message that the lock was granted to a waiter.

    Attributes:
        fence: The fence of the grant.
        clock: Time of the server's clock at the grant, in microseconds.
    """

    fence: int
    clock: int

    @classmethod
    def parse(cls, message: bytes) -> tuple[bytes, Self]:
        """Parse a message of hand_over.lua; return the waiter's token and the wake-up."""
        token, fence, clock = message.split(b" ")
        return token, cls(int(fence), int(clock))

    def compute_deadline(self, queued_reply: WireReply, ttl: float, now: float) -> float | None:
        """Return the time, in seconds of our clock, until which the lease can be trusted.

        The lease is trusted without a command to the server. hand_over.lua publishes only to a
        channel that has a subscriber, and a channel has one subscription, on one server. When that
        server sent the message, it also set the lock's key to our token for our ttl, in one step.
        Until the ttl is over, neither that server nor a replica that has its data gives the lock to
        another token, unless an operator deletes the key or releases the lock. (After a failover
        that loses the last writes, only the fence protects the storage.)

        `queued_reply` has a time of our clock, and the time that the server's clock showed a little
        later. This message has the time that the server's clock showed at the grant. The difference
        of the two times of the server, added to our time, is the time of the grant on our clock.

        Args:
            queued_reply: The reply of acquire.lua that put us into the queue.
            ttl: Seconds for which the lock was granted.
            now: The time of our clock.

        Returns:
            The time; or None if another token may have the lock, for one of these reasons:
            - the message is older than the reply;
            - the server's clock jumped, so that the grant seems to be in the future;
            - a third of the lease is over, as in a process that was paused;
            - so much time has passed since the reply that the drift of the clocks may exceed a
              third of the ttl.
            In all of these cases, ask the server: that renews the lease if it is still ours.
        """
        seconds_in_queue = (self.clock - queued_reply.clock) / 1_000_000  # on the server's clock
        granted_at = queued_reply.sent_at + seconds_in_queue
        lease_age = now - granted_at
        drift = compute_drift(now - queued_reply.sent_at)  # granted_at may be wrong by this much
        is_older_than_reply = seconds_in_queue < 0
        is_in_future = lease_age < -drift
        if is_older_than_reply or is_in_future or lease_age > ttl / 3 or drift > ttl / 3:
            return None
        return min(granted_at, now) + ttl - compute_drift(ttl) - drift


class Inspection(NamedTuple):
    """The holder and the waiters of a lock at one moment on the server.

    Attributes:
        owner: The token of the holder. A token that the lock made, which is the usual case, starts
            with the id of the holder's process. None: the lock is free.
        left: Seconds until the holder's lease ends unless it is renewed. 0.0: the lock is free, or
            another program holds it without an expiry.
        fence: The last fence that was given out. None: no fence is remembered.
        waiters: The tokens of the waiters, the next one first.
    """

    owner: str | None
    left: float
    fence: int | None
    waiters: tuple[str, ...]

    @classmethod
    def parse(cls, reply: Any) -> Self:
        """Parse the reply of inspect.lua."""
        owner, left_milliseconds, fence, waiters = reply
        return cls(
            # Another program may have written a token that is not UTF-8.
            owner=owner.decode(errors="backslashreplace") if owner else None,
            left=max(0, left_milliseconds) / 1000,
            fence=int(fence) if fence else None,
            waiters=tuple(token.decode() for token in waiters),
        )


# If a master is demoted to a replica by REPLICAOF or FAILOVER, its connections stay open. They also
# stay open if the name or the virtual address that clients use is moved to another server. The
# subscribers would wait for wake-ups from a server that no longer grants locks. Until it polls, a
# process that only waits sends no command that the server could refuse (READONLY). So from time to
# time it opens a new connection, which leads to the current master, and checks there whether its
# channel has a subscriber.

#: The command whose reply says whether the server is a master or a replica.
ROLE_COMMAND = ("ROLE",)


def build_subscriber_count_command(channel: bytes) -> tuple[str | bytes, ...]:
    """Return the command that counts the subscribers of the channel at one server."""
    return "PUBSUB", "NUMSUB", channel


class IsReplica(ConnectionError):
    """The client's address leads to a replica. Nothing can be locked until it leads to a master."""

    def __init__(self) -> None:
        super().__init__("this server is a replica; wait until the address leads to a master")


def is_replica(role: Any) -> bool:
    """Return whether the reply to ROLE is that of a replica.

    If the server refused ROLE, because the user has no permission for this command, the result is
    False: the server is then taken for a master.
    """
    return isinstance(role, list) and bool(role) and role[0] != b"master"


def is_subscription_elsewhere(role: Any, subscribers: Any) -> bool:
    """Return whether a subscription is on another server than the sender of these replies.

    The result is False if the sender is a replica. After a failover the client's address, such as a
    DNS name, may lead to a replica for a while. A new subscription could then end up on the
    replica, which grants no locks.

    Args:
        role: The reply to ROLE, or the exception in its place.
        subscribers: The reply to build_subscriber_count_command(), which is the channel and the
            number of its subscribers, or the exception in its place.
    """
    is_count = isinstance(subscribers, list) and len(subscribers) == 2
    return is_count and not is_replica(role) and subscribers[1] == 0


LUA_FOLDER = Path(__file__).parents[1] / "lua"


class Script(NamedTuple):
    """A script's text and the SHA-1 by which a server knows it."""

    text: str
    sha: str


def _read_script(name: str, folder: Path) -> str:
    """Return the text of <folder>/<name>.lua, with the included files in place of `-- include`."""
    text = (folder / f"{name}.lua").read_text()
    return re.sub(
        r"^-- include (\w+)\n", lambda match: _read_script(match[1], folder), text, flags=re.M
    )


@cache
def load_script(name: str, folder: Path = LUA_FOLDER) -> Script:
    """Return the script in <folder>/<name>.lua, with the files that it includes. Reads it once."""
    text = _read_script(name, folder)
    return Script(text, sha1(text.encode()).hexdigest())


Arg = bytes | str | int
Call = tuple[Script, Sequence[bytes], Sequence[Arg]]  # a script with its KEYS and ARGV


class WireError(Exception):
    """The server did not answer, or answered with an error.

    The cause is the exception of redis-py, valkey-py or the socket, or that of a thread that could
    not be started.

    Attributes:
        sent: Whether the command may have been sent, so that it was executed or still may be.
    """

    def __init__(self, cause: BaseException, *, sent: bool) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.sent = sent
        self.__cause__ = cause


def has_class_named(reply_or_error: object, name: str) -> bool:
    """Return whether the object's class, or one of its bases, has this name."""
    return any(base.__name__ == name for base in type(reply_or_error).__mro__)


def is_client_error(error: BaseException) -> bool:
    """Return whether redis-py, valkey-py or their socket raised the error."""
    return (
        has_class_named(error, "RedisError")
        or has_class_named(error, "ValkeyError")
        or isinstance(error, OSError)
    )


def is_refusal_of_replica(error: BaseException) -> bool:
    """Return whether a server refused a command because it was demoted to a replica."""
    return has_class_named(error, "ReadOnlyError") or (
        has_class_named(error, "ResponseError") and "READONLY" in str(error)
    )


def pack_evalsha(script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> bytes:
    """Return the command that runs the script by its SHA-1, as pack_command() does."""
    return pack_command("EVALSHA", script.sha, len(keys), *keys, *args)


def pack_eval(script: Script, keys: Sequence[bytes], args: Sequence[Arg]) -> bytes:
    """Return the command that runs the script by its text, for a server that does not know it."""
    return pack_command("EVAL", script.text, len(keys), *keys, *args)


def pack_command(*parts: Arg) -> bytes:
    """Return the bytes of a command as Redis's protocol RESP encodes it: an array of strings.

    redis-py's function takes longer, and that of hiredis crashes if a signal handler raises an
    exception while an int is packed.
    """
    strings = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n%b" % (
        len(strings),
        b"".join([b"$%d\r\n%b\r\n" % (len(string), string) for string in strings]),
    )
