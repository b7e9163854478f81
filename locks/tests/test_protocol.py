"""The decisions that need no server.

Keys, how long a wake-up lets a waiter trust its lease, and when the waiters of one process ask
whether the holder's lease has ended; where a command goes in a cluster, and what errors mean there.
"""

import math
import random
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from redis import exceptions
from redis.crc import key_slot

from ..clock import now
from ..cluster.nodes import SlotCommands
from ..cluster.slots import (
    LONGEST_OUTAGE_SECONDS,
    Hop,
    Place,
    Refresh,
    Send,
    Topology,
    route,
    slot_of,
    tag_of,
)
from ..lease import new_token
from ..sans_io.acquisition import STAGGER_SECONDS, LockWaiters
from ..sans_io.protocol import (
    Script,
    Wake,
    WireError,
    WireReply,
    channel_for,
    derive_keys,
    drift,
    milliseconds,
    queue_args,
    script,
)
from ..sans_io.steps import run_steps

TTL = 10.0
QUEUED = WireReply(sent_at=1000.0, clock=5_000_000, fence=None, left=9.0)

NAMES = ["plain", "{}", "a{}b", "}", "{", "{x}y", "%7B", "a b\n", "größe 蘋果", "a" * 300]
LOCK_KEYS = [derive_keys(name)[0] for name in NAMES]


def test_different_names_have_different_keys() -> None:
    names = ["".join(letters) for n in (1, 2, 3, 4) for letters in product("{}%7Ba", repeat=n)]
    locks = {derive_keys(name)[0] for name in names}
    assert len(locks) == len(names)
    assert all(len({key_slot(key) for key in derive_keys(name)}) == 1 for name in names)


def test_times_are_rounded_up_to_milliseconds() -> None:
    assert milliseconds(0.0004) == 1
    assert queue_args(b"c", 0.0004, 0.0, 0)[2:4] == (1, 0)
    assert queue_args(b"c", float("inf"), float("inf"), 0)[2:4] == (-1, -1)


def test_trusted_wake_up_never_outlives_the_servers_lease() -> None:
    """The lock is handed over `waited` after the server queued us, which was `sending` after we
    asked; the wake-up is read `delay` later. On our clock the key expires at `ends`."""
    chance = random.Random(7)
    for _ in range(5000):
        waited = chance.choice([0, chance.uniform(0, 1), chance.uniform(0, 600)])
        delay, sending = chance.uniform(0, 2 * TTL), chance.uniform(0, 0.2)
        granted_at = QUEUED.sent_at + sending + waited
        ends = granted_at + TTL
        wake = Wake(1, QUEUED.clock + int(waited * 1e6))
        deadline = wake.deadline(QUEUED, TTL, granted_at + delay)
        slack = drift(waited + delay + sending)
        if delay > TTL / 3 or slack > TTL / 3 + 0.001:
            assert deadline is None
        elif delay + sending < TTL / 3 - 0.001 and slack < TTL / 3 - 0.001:
            assert deadline is not None
            cautious = sending + drift(TTL) + drift(waited + delay + sending)
            assert deadline > ends - cautious - 0.0001
        assert deadline is None or deadline <= ends


@pytest.mark.parametrize(
    ("clock", "now"),
    [
        (QUEUED.clock - 1, 1001.0),  # granted before we queued: of an earlier turn
        (QUEUED.clock + 60_000_000, 1001.0),  # the server's clock jumped ahead
        (QUEUED.clock + 1_000_000, 1061.0),  # it jumped back, or we were paused
    ],
)
def test_implausible_wake_up_is_verified_at_the_server(clock: int, now: float) -> None:
    assert Wake(1, clock).deadline(QUEUED, TTL, now) is None


TTL = 10.0


def make_lock_waiters(number: int) -> tuple[LockWaiters, list[float]]:
    """Return this many waiters of a lock, and the time at which each of them polls."""
    lock_waiters = LockWaiters()
    tokens = [new_token().encode() for _ in range(number)]
    lock_waiters.mailboxes.update(dict.fromkeys(tokens))
    return lock_waiters, [lock_waiters.poll_at(token, TTL) for token in tokens]


def test_first_waiter_polls_at_once_and_others_later() -> None:
    _, asks = make_lock_waiters(10)
    assert asks == [0.001, *[STAGGER_SECONDS] * 9]


def test_polls_of_many_waiters_are_spread() -> None:
    """With one moment for all, 5,000 commands would go out in one turn of an event loop."""
    _, asks = make_lock_waiters(5000)
    assert asks[0] == 0.001
    assert min(asks[1:]) >= STAGGER_SECONDS
    for start in range(13):
        assert sum(start <= second < start + 1 for second in asks) < 600


def test_waiter_keeps_its_poll_time_relative_to_the_lease() -> None:
    lock_waiters, asks = make_lock_waiters(500)
    last = list(lock_waiters.mailboxes)[-1]
    assert lock_waiters.poll_at(last, TTL) == asks[-1]
    lock_waiters.lease_ends_at = 7.0
    assert abs(lock_waiters.poll_at(last, TTL) - asks[-1] - 7.0) < 1e-6


def test_waiter_polls_once_per_ttl_during_a_long_lease() -> None:
    lock_waiters, asks = make_lock_waiters(2)
    lock_waiters.lease_ends_at = 1000.0
    lock_waiters.polled_at = 5.0
    due = [lock_waiters.poll_at(token, TTL) - TTL - 5.0 for token in lock_waiters.mailboxes]
    assert due == pytest.approx(asks)


A, B = ("a", 1), ("b", 2)
SLOT = 7


def known(*places: Place) -> Topology:
    topology = Topology(list(places))
    topology.learn([[0, 16383, *[[host.encode(), port] for host, port in places]]], places[0])
    return topology


def error(cause: Exception, *, sent: bool = True) -> WireError:
    return WireError(cause, sent=sent)


def drive(topology: Topology, *answers: Any, until: float = math.inf, **options: Any) -> list[Any]:
    """The steps, and at the end what came out of them."""
    steps: list[Any] = []
    rest = list(answers)

    def do(step: Hop) -> Any:
        steps.append(step)
        answer = rest.pop(0) if isinstance(step, Send) else None
        if isinstance(answer, WireError):
            raise answer
        return answer

    try:
        reply = run_steps(route(topology, SLOT, until, **options), do)
        return [*steps, reply]
    except WireError as failed:
        return [*steps, failed]


def sends(steps: list[Any]) -> list[tuple[str, bool]]:
    return [(step.place[0], step.asking) for step in steps if isinstance(step, Send)]


@pytest.mark.parametrize(
    "key",
    LOCK_KEYS + [b"report", b"a{b}c", b"two words", b"{}odd", b"odd}"],
)
def test_slot_follows_the_specification(
    key: bytes,
) -> None:
    """The channel of the same slot has no blanks."""
    assert slot_of(key) == key_slot(key)
    channel = channel_for(tag_of(key))
    assert key_slot(channel) == key_slot(key)
    assert len(channel.split()) == 1
    assert channel.startswith(b"lock:wake:{")


@pytest.mark.parametrize("raw", [False, True], ids=["redis-py", "a parser that knows no cluster"])
def test_moved_is_remembered_and_ask_is_followed_once(raw: bool) -> None:
    topology = known(A, B)
    moved: Exception = exceptions.MovedError("7 b:2")
    ask: Exception = exceptions.AskError("7 b:2")
    if raw:
        moved = exceptions.ResponseError("MOVED 7 b:2")
        ask = exceptions.ResponseError("ASK 7 b:2")
    hops = drive(topology, error(ask), "reply")
    assert sends(hops) == [("a", False), ("b", True)]
    assert topology.place_of(SLOT) == A
    assert sends(drive(topology, error(moved), "reply")) == [("a", False), ("b", False)]
    assert topology.place_of(SLOT) == B
    assert topology.place_of(SLOT + 1) == A


@pytest.mark.parametrize(
    "passing",
    [
        exceptions.TryAgainError("Multiple keys request during rehashing of slot"),
        exceptions.ClusterDownError("Hash slot not served"),
        exceptions.MasterDownError("Link with MASTER is down"),
        exceptions.ReadOnlyError("You can't write against a read only replica."),
        exceptions.ResponseError("TRYAGAIN Multiple keys request during rehashing of slot"),
        exceptions.ConnectionError("refused"),
        exceptions.TimeoutError("silent"),
        exceptions.BusyLoadingError("LOADING"),
    ],
    ids=lambda passing: type(passing).__name__,
)
def test_temporary_error_is_retried_until_the_wait_ends(passing: Exception) -> None:
    steps = drive(known(A), error(passing), error(passing), "reply")
    assert [type(step) for step in steps[:-1]] == [Send, Refresh, Send, Refresh, Send]
    assert steps[-1] == "reply"
    pauses = [step.pause for step in steps if isinstance(step, Refresh)]
    assert pauses == sorted(pauses)
    late = drive(known(A), error(passing), until=now() + 0.001)
    assert isinstance(late[-1], WireError)
    assert late[-1].__cause__ is passing


def test_error_of_the_command_is_not_retried() -> None:
    wrong = exceptions.ResponseError("WRONGTYPE Operation against a key")
    steps = drive(known(A), error(wrong))
    assert sends(steps) == [("a", False)]
    assert steps[-1].__cause__ is wrong


def test_endless_redirections_are_followed_with_pauses() -> None:
    ring = [error(exceptions.MovedError("7 b:2")), error(exceptions.MovedError("7 a:1"))] * 4
    steps = drive(known(A, B), *ring, "reply")
    assert Refresh in [type(step) for step in steps]
    assert steps[-1] == "reply"


def test_repeated_release_does_not_report_an_expired_lease() -> None:
    lost = error(exceptions.ConnectionError("cut"))
    unsure = drive(known(A), lost, -1, repeatable=False)
    assert isinstance(unsure[-1], WireError)
    assert unsure[-1].sent
    assert drive(known(A), lost, 1, repeatable=False)[-1] == 1
    refused = error(exceptions.ConnectionError("refused"), sent=False)
    assert drive(known(A), refused, -1, repeatable=False)[-1] == -1
    again = error(exceptions.TryAgainError(""))  # not executed
    assert drive(known(A), again, -1, repeatable=False)[-1] == -1


def test_commands_are_recognized_if_two_threads_read_a_script() -> None:
    """The slower thread's copy is a different object from the cached one."""
    nodes: Any = SimpleNamespace(topology=known(A), address=SimpleNamespace(timeout=5.0))
    nodes.wakeups_of = lambda _: SimpleNamespace(slot=SLOT)
    for name, args in (("release", ("token", 1)), ("renew", ("token", 1, "least", "heir", 1))):
        steps = SlotCommands(nodes, b"key").route((Script(*script(name)), (b"key",), args), None)
        next(steps)
        steps.throw(error(exceptions.ConnectionError("the reply was lost")))
        steps.send(None)
        with pytest.raises(WireError):
            steps.send(-1)


def test_unknown_cluster_is_asked_for_its_slots_first() -> None:
    topology = Topology([A])
    steps = route(topology, SLOT, now() + LONGEST_OUTAGE_SECONDS)
    assert next(steps) == Refresh(0.0)
    topology.learn([[0, 16383, [None, 5]]], A)  # a node that does not know its own host
    assert sends([next(steps)]) == [("a", False)]
    assert topology.place_of(SLOT) == ("a", 5)


def test_addresses_are_remapped() -> None:
    topology = Topology([A], lambda place: ("outside", place[1]))
    topology.learn([[0, 16383, [b"inside", 5]]], A)
    assert topology.place_of(SLOT) == ("outside", 5)
    topology.moved(SLOT, ("inside", 6))
    assert topology.place_of(SLOT) == ("outside", 6)


def test_refusing_node_is_asked_last_for_the_slots() -> None:
    """A primary that is cut off from its peers, and not from us, still names itself."""
    topology = known(A, B)
    down = exceptions.ClusterDownError("CLUSTERDOWN The cluster is down")
    steps = route(topology, SLOT, math.inf)
    next(steps)
    steps.throw(error(down))
    assert topology.places == [B, A]
    topology.learn([[0, 16383, [b"a", 1], [b"b", 2]]], B)
    assert topology.places == [B, A]
