"""Tests of the functions that need no server.

They derive keys, decide whether a wake-up can be trusted, compute the times at which waiters poll,
and choose the node of a cluster to which a command is sent.
"""

import math
import queue
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
    Endpoint,
    Refresh,
    RouteStep,
    Send,
    Topology,
    compute_slot,
    find_hash_tag,
    route,
)
from ..lease import new_token
from ..sans_io.acquisition import STAGGER_SECONDS, ChannelWaiters, LockWaiters
from ..sans_io.protocol import (
    Script,
    Wake,
    WireError,
    WireReply,
    build_queue_args,
    compute_drift,
    derive_keys,
    load_script,
    make_channel,
    to_milliseconds,
)
from ..sans_io.steps import run_steps

TTL_SECONDS = 10.0
#: The reply of acquire.lua to a waiter that it has put into the queue. The command was sent at
#: second 1000 of the waiter's clock. It ran at second 5 of the server's clock, in microseconds.
QUEUED_REPLY = WireReply(sent_at=1000.0, clock=5_000_000, fence=None, lease_seconds_left=9.0)

#: Names of locks, some with characters that are escaped in keys or not allowed in channels.
NAMES = ["plain", "{}", "a{}b", "}", "{", "{x}y", "%7B", "a b\n", "größe 蘋果", "a" * 300]
LOCK_KEYS = [derive_keys(name)[0] for name in NAMES]


def test_different_names_have_different_keys() -> None:
    """The names are combinations of the characters of braces and of their escapes, %7B and %7D.

    The four keys of each lock have the same slot.
    """
    names = [
        "".join(letters) for length in (1, 2, 3, 4) for letters in product("{}%7Ba", repeat=length)
    ]
    lock_keys = {derive_keys(name)[0] for name in names}
    assert len(lock_keys) == len(names)
    assert all(len({key_slot(key) for key in derive_keys(name)}) == 1 for name in names)


def test_times_are_rounded_up_to_milliseconds() -> None:
    """A time of less than 1 ms is sent to a script as 1 ms, and an infinite time as -1."""
    assert to_milliseconds(0.0004) == 1
    _, _, wait, renewed_for, _ = build_queue_args(b"channel", wait=0.0004, renewed_for=0.0, place=0)
    assert (wait, renewed_for) == (1, 0)
    _, _, wait, renewed_for, _ = build_queue_args(b"channel", math.inf, math.inf, place=0)
    assert (wait, renewed_for) == (-1, -1)


def test_trusted_wake_up_never_outlives_the_servers_lease() -> None:
    """A waiter trusts its lease until a deadline. The key on the server never expires before that.

    All times here are times of the waiter's clock. The waiter's request takes `sending` seconds to
    the server, which queues the waiter. The lock is granted `waited` seconds later. The waiter
    reads the wake-up `delay` seconds after the grant.
    """
    rng = random.Random(7)
    for _ in range(5000):
        waited = rng.choice([0, rng.uniform(0, 1), rng.uniform(0, 600)])
        delay, sending = rng.uniform(0, 2 * TTL_SECONDS), rng.uniform(0, 0.2)
        granted_at = QUEUED_REPLY.sent_at + sending + waited
        expires_at = granted_at + TTL_SECONDS
        wake = Wake(1, QUEUED_REPLY.clock + int(waited * 1e6))
        deadline = wake.compute_deadline(QUEUED_REPLY, TTL_SECONDS, granted_at + delay)
        drift = compute_drift(waited + delay + sending)  # of the two clocks since the request
        # A wake-up must not be trusted if it is late by a third of the ttl, or if the clocks may
        # have drifted apart by that much. Within 0.001 s of the limit either result is accepted.
        longest_delay = TTL_SECONDS / 3
        if delay > longest_delay or drift > longest_delay + 0.001:
            assert deadline is None
        elif delay + sending < longest_delay - 0.001 and drift < longest_delay - 0.001:
            assert deadline is not None
            # The deadline is earlier than the expiry, but by no more than this.
            margin = sending + compute_drift(TTL_SECONDS) + drift
            assert deadline > expires_at - margin - 0.0001
        assert deadline is None or deadline <= expires_at


@pytest.mark.parametrize(
    ("granted_clock", "read_at"),
    [
        (QUEUED_REPLY.clock - 1, 1001.0),  # granted before the waiter was queued
        (QUEUED_REPLY.clock + 60_000_000, 1001.0),  # the server's clock jumped ahead
        (QUEUED_REPLY.clock + 1_000_000, 1061.0),  # it jumped back, or the waiter was paused
    ],
)
def test_implausible_wake_up_is_verified_at_the_server(granted_clock: int, read_at: float) -> None:
    """The wake-up is not trusted, so the waiter asks the server.

    The waiter was queued at second 1000.0 of its clock (QUEUED_REPLY), and reads the wake-up at
    `read_at`. The lock was granted at `granted_clock` of the server's clock, in microseconds.
    """
    assert Wake(1, granted_clock).compute_deadline(QUEUED_REPLY, TTL_SECONDS, read_at) is None


def test_all_waiters_poll_after_their_subscription_broke() -> None:
    """Two threads that begin to wait at the same moment may have two LockWaiters for one lock.

    When the subscription breaks, the waiters of both must poll.
    """
    renewals: Any = None  # not needed in this test
    waiters = ChannelWaiters(queue.SimpleQueue, renewals)
    first_mailbox, first_lock_waiters = waiters.join(b"lock", b"first")
    # The second thread joins at the same moment, so it does not find the first LockWaiters.
    waiters._lock_waiters_by_key.clear()
    second_mailbox, second_lock_waiters = waiters.join(b"lock", b"second")
    assert first_lock_waiters is not second_lock_waiters
    waiters.make_all_poll()
    # Each mailbox has one message, which makes its waiter poll.
    assert [first_mailbox.qsize(), second_mailbox.qsize()] == [1, 1]


def make_lock_waiters(count: int) -> tuple[LockWaiters, list[float]]:
    """Return `count` waiters of a lock, and the time at which each of them polls.

    The times are in seconds after the end of the holder's lease.
    """
    lock_waiters = LockWaiters()
    tokens = [new_token().encode() for _ in range(count)]
    lock_waiters.mailboxes.update(dict.fromkeys(tokens))
    return lock_waiters, [lock_waiters.compute_poll_time(token, TTL_SECONDS) for token in tokens]


def test_first_waiter_polls_at_once_and_others_later() -> None:
    """The first waiter polls 0.001 s after the end of the lease, as soon as its key has expired.

    The nine other waiters poll STAGGER_SECONDS after the end. They are too few to be spread.
    """
    _, poll_times = make_lock_waiters(10)
    assert poll_times == [0.001, *[STAGGER_SECONDS] * 9]


def test_polls_of_many_waiters_are_spread() -> None:
    """5,000 waiters do not poll at the same time, which would block an event loop."""
    _, poll_times = make_lock_waiters(5000)
    assert poll_times[0] == 0.001
    assert min(poll_times[1:]) >= STAGGER_SECONDS
    # About 400 waiters poll in each second, so 5,000 take about 12.5 s. The bound of 600 is for the
    # seconds in which more waiters poll than on average.
    for second in range(13):
        assert sum(second <= poll_time < second + 1 for poll_time in poll_times) < 600


def test_later_end_of_the_lease_postpones_the_poll() -> None:
    """When the lease ends 7 s later than before, the waiter polls 7 s later."""
    lock_waiters, poll_times = make_lock_waiters(500)
    last_token = list(lock_waiters.mailboxes)[-1]
    assert lock_waiters.compute_poll_time(last_token, TTL_SECONDS) == poll_times[-1]
    lock_waiters.lease_ends_at = 7.0
    assert lock_waiters.compute_poll_time(last_token, TTL_SECONDS) == pytest.approx(
        poll_times[-1] + 7.0
    )


def test_waiter_polls_once_per_ttl_during_a_long_lease() -> None:
    """The lease ends at 1000 s, and a waiter polled at 5 s. The next polls come a ttl after that.

    They must not wait for the end of the lease, because the holder may be a different one by then.
    """
    lock_waiters, poll_times = make_lock_waiters(2)
    lock_waiters.lease_ends_at = 1000.0
    lock_waiters.polled_at = 5.0
    next_poll_times = [
        lock_waiters.compute_poll_time(token, TTL_SECONDS) for token in lock_waiters.mailboxes
    ]
    assert next_poll_times == pytest.approx(
        [5.0 + TTL_SECONDS + poll_time for poll_time in poll_times]
    )


#: The addresses of two nodes of a cluster.
NODE_A, NODE_B = ("a", 1), ("b", 2)
#: The slot of all commands in these tests.
SLOT = 7


def make_topology(*endpoints: Endpoint) -> Topology:
    """Return a topology whose first node owns all slots. The others are replicas of it."""
    topology = Topology(list(endpoints))
    topology.learn_slots(
        [[0, 16383, *[[host.encode(), port] for host, port in endpoints]]], endpoints[0]
    )
    return topology


def make_error(cause: Exception, *, sent: bool = True) -> WireError:
    """Return the error of a command. `sent` is True if the server may have executed it."""
    return WireError(cause, sent=sent)


def run_route(
    topology: Topology, *replies: Any, until: float = math.inf, **options: Any
) -> list[Any]:
    """Send a command to a fake cluster, and return what happened.

    route() yields steps: a Send sends the command to a node, a Refresh looks up the slots.

    Args:
        topology: What the client knows about the cluster.
        replies: A reply for each Send in turn: an error, which is raised, or any other object.
        until: The time at which the attempts end.
        options: Further options of route().

    Returns:
        The steps, followed by the result of the command: the last reply or the last error.
    """
    steps: list[Any] = []
    remaining_replies = list(replies)

    def execute(step: RouteStep) -> Any:
        steps.append(step)
        reply = remaining_replies.pop(0) if isinstance(step, Send) else None
        if isinstance(reply, WireError):
            raise reply
        return reply

    try:
        reply = run_steps(route(topology, SLOT, until, **options), execute)
        return [*steps, reply]
    except WireError as error:
        return [*steps, error]


def list_sends(steps: list[Any]) -> list[tuple[str, bool]]:
    """Return the host of each Send, and whether the command ASKING precedes the command there."""
    return [(step.endpoint[0], step.asking) for step in steps if isinstance(step, Send)]


@pytest.mark.parametrize(
    "key",
    LOCK_KEYS + [b"report", b"a{b}c", b"two words", b"{}odd", b"odd}"],
)
def test_slot_follows_the_specification(key: bytes) -> None:
    """compute_slot() and redis-py compute the same slot for a key.

    The channel on which the waiters for that key are woken has the same slot, and its name contains
    no white space.
    """
    assert compute_slot(key) == key_slot(key)
    channel = make_channel(find_hash_tag(key))
    assert key_slot(channel) == key_slot(key)
    assert len(channel.split()) == 1
    assert channel.startswith(b"lock:wake:{")


@pytest.mark.parametrize("is_parsed", [True, False], ids=["error class", "error text"])
def test_moved_is_remembered_and_ask_is_followed_once(is_parsed: bool) -> None:
    """MOVED 7 b:2 means that node b owns slot 7 from now on. ASK applies to one command only.

    A client without support for clusters raises a ResponseError with that text.
    """
    topology = make_topology(NODE_A, NODE_B)
    moved_error: Exception = exceptions.MovedError("7 b:2")
    ask_error: Exception = exceptions.AskError("7 b:2")
    if not is_parsed:
        moved_error = exceptions.ResponseError("MOVED 7 b:2")
        ask_error = exceptions.ResponseError("ASK 7 b:2")
    steps = run_route(topology, make_error(ask_error), "reply")
    assert list_sends(steps) == [("a", False), ("b", True)]
    assert topology.find_endpoint(SLOT) == NODE_A
    assert list_sends(run_route(topology, make_error(moved_error), "reply")) == [
        ("a", False),
        ("b", False),
    ]
    assert topology.find_endpoint(SLOT) == NODE_B
    assert topology.find_endpoint(SLOT + 1) == NODE_A


@pytest.mark.parametrize(
    "transient_error",
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
    ids=lambda transient_error: type(transient_error).__name__,
)
def test_temporary_error_is_retried_until_the_wait_ends(transient_error: Exception) -> None:
    """Before each retry there is a pause, not shorter than the last, and the slots are looked up.

    After `until` the error is raised instead.
    """
    steps = run_route(
        make_topology(NODE_A), make_error(transient_error), make_error(transient_error), "reply"
    )
    assert [type(step) for step in steps[:-1]] == [Send, Refresh, Send, Refresh, Send]
    assert steps[-1] == "reply"
    pauses = [step.pause for step in steps if isinstance(step, Refresh)]
    assert pauses == sorted(pauses)
    late_steps = run_route(make_topology(NODE_A), make_error(transient_error), until=now() + 0.001)
    assert isinstance(late_steps[-1], WireError)
    assert late_steps[-1].__cause__ is transient_error


def test_error_of_the_command_is_not_retried() -> None:
    """WRONGTYPE is an error of the command, so each retry would fail as well."""
    wrong_type = exceptions.ResponseError("WRONGTYPE Operation against a key")
    steps = run_route(make_topology(NODE_A), make_error(wrong_type))
    assert list_sends(steps) == [("a", False)]
    assert steps[-1].__cause__ is wrong_type


def test_endless_redirections_are_followed_with_pauses() -> None:
    """Two nodes redirect a command to each other eight times. A Refresh pauses in between."""
    redirections = [
        make_error(exceptions.MovedError("7 b:2")),
        make_error(exceptions.MovedError("7 a:1")),
    ] * 4
    steps = run_route(make_topology(NODE_A, NODE_B), *redirections, "reply")
    assert Refresh in [type(step) for step in steps]
    assert steps[-1] == "reply"


def test_repeated_release_does_not_report_an_expired_lease() -> None:
    """A release has the reply 1 if it released the lock, and -1 if the lock was free before.

    After a lost reply the release is sent again. If the reply is now -1, the first try may have
    released the lock, or the lease may have expired. So the result is an error. But if the first
    try was not executed, -1 means that the lease had expired.
    """
    lost_reply = make_error(exceptions.ConnectionError("cut"))
    steps = run_route(make_topology(NODE_A), lost_reply, -1, repeatable=False)
    assert isinstance(steps[-1], WireError)
    assert steps[-1].sent
    assert run_route(make_topology(NODE_A), lost_reply, 1, repeatable=False)[-1] == 1
    refusal = make_error(exceptions.ConnectionError("refused"), sent=False)
    assert run_route(make_topology(NODE_A), refusal, -1, repeatable=False)[-1] == -1
    try_again = make_error(exceptions.TryAgainError(""))  # the command was not executed
    assert run_route(make_topology(NODE_A), try_again, -1, repeatable=False)[-1] == -1


def test_refused_retry_does_not_hide_that_a_try_was_sent() -> None:
    """The reply to the first try is lost, and the retry is refused before it is sent.

    The error's `sent` is True: the first try may have been executed, and must be undone.
    """
    lost_reply = make_error(exceptions.ConnectionError("cut"))
    refusal = make_error(exceptions.NoPermissionError("no permission"), sent=False)
    steps = run_route(make_topology(NODE_A), lost_reply, refusal)
    assert steps[-1] is refusal
    assert steps[-1].sent


def test_release_and_adoption_are_recognized_by_equal_scripts() -> None:
    """A retried release or adoption is an error if the reply is -1, "the lock was free".

    The first attempt, whose reply was lost, may have released the lock or given it to the heir.

    SlotCommands recognizes these commands by their script. It must compare the content of the
    scripts: two threads that load a script at the same time have two equal objects. An adoption
    calls renew.lua to give the lock to another token, here "heir".
    """
    nodes: Any = SimpleNamespace(
        topology=make_topology(NODE_A), address=SimpleNamespace(timeout=5.0)
    )
    nodes.get_wakeups_of = lambda _: SimpleNamespace(slot=SLOT)
    for name, args in (("release", ("token", 1)), ("renew", ("token", 1, "set", "heir", 1))):
        copied_script = Script(*load_script(name))
        steps = SlotCommands(nodes, b"key").route((copied_script, (b"key",), args), None)
        next(steps)
        steps.throw(make_error(exceptions.ConnectionError("the reply was lost")))
        steps.send(None)  # the slots were looked up
        with pytest.raises(WireError):
            steps.send(-1)


def test_owners_of_the_slots_are_looked_up_first() -> None:
    """The topology has the address of a node, but does not know yet which node owns a slot."""
    topology = Topology([NODE_A])
    steps = route(topology, SLOT, now() + LONGEST_OUTAGE_SECONDS)
    assert next(steps) == Refresh(0.0)  # without a pause
    topology.learn_slots([[0, 16383, [None, 5]]], NODE_A)  # a node that does not know its own host
    assert list_sends([next(steps)]) == [("a", False)]
    assert topology.find_endpoint(SLOT) == ("a", 5)


def test_addresses_are_remapped() -> None:
    """The client's address_remap replaces each address that the cluster reports."""
    topology = Topology([NODE_A], lambda endpoint: ("outside", endpoint[1]))
    topology.learn_slots([[0, 16383, [b"inside", 5]]], NODE_A)
    assert topology.find_endpoint(SLOT) == ("outside", 5)
    topology.record_move(SLOT, ("inside", 6))
    assert topology.find_endpoint(SLOT) == ("outside", 6)


def test_slots_are_looked_up_last_at_a_refusing_node() -> None:
    """A node that answers CLUSTERDOWN is queried last in the next look-up of the slots.

    The node may be a primary without contact to its peers, which still reports that it owns its
    slots.
    """
    topology = make_topology(NODE_A, NODE_B)
    down = exceptions.ClusterDownError("CLUSTERDOWN The cluster is down")
    steps = route(topology, SLOT, math.inf)
    next(steps)
    steps.throw(make_error(down))
    assert topology.endpoints == [NODE_B, NODE_A]
    topology.learn_slots([[0, 16383, [b"a", 1], [b"b", 2]]], NODE_B)
    assert topology.endpoints == [NODE_B, NODE_A]
