"""The decisions that need no server.

They concern keys, the trust in a wake-up, the times at which the waiters of a process poll, and the
routing of commands and the errors in a cluster.
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
#: A reply of acquire.lua that puts a waiter into the queue.
QUEUED_REPLY = WireReply(sent_at=1000.0, clock=5_000_000, fence=None, lease_seconds_left=9.0)

#: Names of locks that need care in a key or a channel.
NAMES = ["plain", "{}", "a{}b", "}", "{", "{x}y", "%7B", "a b\n", "größe 蘋果", "a" * 300]
LOCK_KEYS = [derive_keys(name)[0] for name in NAMES]


def test_different_names_have_different_keys() -> None:
    """The names are all combinations of up to four letters that are special in a key."""
    names = ["".join(letters) for n in (1, 2, 3, 4) for letters in product("{}%7Ba", repeat=n)]
    lock_keys = {derive_keys(name)[0] for name in names}
    assert len(lock_keys) == len(names)
    assert all(len({key_slot(key) for key in derive_keys(name)}) == 1 for name in names)


def test_times_are_rounded_up_to_milliseconds() -> None:
    """In acquire.lua -1 stands for a time without a limit."""
    assert to_milliseconds(0.0004) == 1
    _, _, wait, renewed_for, _ = build_queue_args(b"channel", wait=0.0004, renewed_for=0.0, place=0)
    assert (wait, renewed_for) == (1, 0)
    _, _, wait, renewed_for, _ = build_queue_args(b"channel", math.inf, math.inf, place=0)
    assert (wait, renewed_for) == (-1, -1)


def test_trusted_wake_up_never_outlives_the_servers_lease() -> None:
    """The waiter's deadline is not later than `expires_at`, when the key expires on its clock.

    The request takes `sending` seconds to the server, which queues the waiter and grants the lock
    `waited` seconds later. The waiter reads the wake-up `delay` seconds after that.
    """
    rng = random.Random(7)
    for _ in range(5000):
        waited = rng.choice([0, rng.uniform(0, 1), rng.uniform(0, 600)])
        delay, sending = rng.uniform(0, 2 * TTL_SECONDS), rng.uniform(0, 0.2)
        granted_at = QUEUED_REPLY.sent_at + sending + waited
        expires_at = granted_at + TTL_SECONDS
        wake = Wake(1, QUEUED_REPLY.clock + int(waited * 1e6))
        deadline = wake.compute_deadline(QUEUED_REPLY, TTL_SECONDS, granted_at + delay)
        slack = compute_drift(waited + delay + sending)
        # A wake-up is not trusted after a third of the ttl. Close to that, both results are right.
        if delay > TTL_SECONDS / 3 or slack > TTL_SECONDS / 3 + 0.001:
            assert deadline is None
        elif delay + sending < TTL_SECONDS / 3 - 0.001 and slack < TTL_SECONDS / 3 - 0.001:
            assert deadline is not None
            # The lease is trusted for less than its ttl, by this margin.
            margin = sending + compute_drift(TTL_SECONDS) + slack
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
    """The waiter was queued at second 1000.0 of its clock."""
    assert Wake(1, granted_clock).compute_deadline(QUEUED_REPLY, TTL_SECONDS, read_at) is None


def test_broken_subscription_makes_waiters_poll_that_joined_at_once() -> None:
    """Two threads that join the queue at the same moment may get different LockWaiters.

    After the subscription broke, the waiters of both must poll.
    """
    renewals: Any = None
    waiters = ChannelWaiters(queue.SimpleQueue, renewals)
    first_mailbox, first_lock_waiters = waiters.join(b"lock", b"first")
    # A thread that joins at the same moment does not find the LockWaiters of the first thread.
    waiters._lock_waiters_by_key.clear()
    second_mailbox, second_lock_waiters = waiters.join(b"lock", b"second")
    assert first_lock_waiters is not second_lock_waiters
    waiters.make_all_poll()
    assert [first_mailbox.qsize(), second_mailbox.qsize()] == [1, 1]


def make_lock_waiters(count: int) -> tuple[LockWaiters, list[float]]:
    """Return this many waiters of a lock, and the time at which each polls.

    The times are in seconds after the end of the lock's lease.
    """
    lock_waiters = LockWaiters()
    tokens = [new_token().encode() for _ in range(count)]
    lock_waiters.mailboxes.update(dict.fromkeys(tokens))
    return lock_waiters, [lock_waiters.compute_poll_time(token, TTL_SECONDS) for token in tokens]


def test_first_waiter_polls_at_once_and_others_later() -> None:
    _, poll_times = make_lock_waiters(10)
    # The first waiter polls 0.001 s after the end of the lease, the precision of Redis's expiry.
    assert poll_times == [0.001, *[STAGGER_SECONDS] * 9]


def test_polls_of_many_waiters_are_spread() -> None:
    """If all polled at once, an event loop would send 5,000 commands in a single turn."""
    _, poll_times = make_lock_waiters(5000)
    assert poll_times[0] == 0.001
    assert min(poll_times[1:]) >= STAGGER_SECONDS
    # About 400 waiters poll in each second, so all of them in about 12.5 s. Some seconds have more.
    for second in range(13):
        assert sum(second <= poll_time < second + 1 for poll_time in poll_times) < 600


def test_waiter_keeps_its_poll_time_relative_to_the_lease() -> None:
    """If the lease ends 7 s later, the waiter polls 7 s later."""
    lock_waiters, poll_times = make_lock_waiters(500)
    last_token = list(lock_waiters.mailboxes)[-1]
    assert lock_waiters.compute_poll_time(last_token, TTL_SECONDS) == poll_times[-1]
    lock_waiters.lease_ends_at = 7.0
    assert lock_waiters.compute_poll_time(last_token, TTL_SECONDS) == pytest.approx(
        poll_times[-1] + 7.0
    )


def test_waiter_polls_once_per_ttl_during_a_long_lease() -> None:
    """The next polls come as if the lease ended one ttl after the last poll."""
    lock_waiters, poll_times = make_lock_waiters(2)
    lock_waiters.lease_ends_at = 1000.0
    lock_waiters.polled_at = 5.0
    next_poll_times = [
        lock_waiters.compute_poll_time(token, TTL_SECONDS) for token in lock_waiters.mailboxes
    ]
    assert next_poll_times == pytest.approx(
        [5.0 + TTL_SECONDS + poll_time for poll_time in poll_times]
    )


#: Two nodes of a cluster, as host and port, and the slot of the commands.
NODE_A, NODE_B = ("a", 1), ("b", 2)
SLOT = 7


def make_topology(*endpoints: Endpoint) -> Topology:
    """Return a topology in which the first node owns all slots, and the others are its replicas."""
    topology = Topology(list(endpoints))
    topology.learn_slots(
        [[0, 16383, *[[host.encode(), port] for host, port in endpoints]]], endpoints[0]
    )
    return topology


def make_error(cause: Exception, *, sent: bool = True) -> WireError:
    """Return an error of a command. `sent` says whether the command may have been executed."""
    return WireError(cause, sent=sent)


def run_route(
    topology: Topology, *answers: Any, until: float = math.inf, **options: Any
) -> list[Any]:
    """Return the steps in which a command is sent to a cluster, and last its reply or error.

    A step sends the command (Send), or looks up the slots (Refresh). Each Send gets the next of
    the `answers`, which is a reply or an error to raise.
    """
    steps: list[Any] = []
    remaining_answers = list(answers)

    def execute(step: RouteStep) -> Any:
        steps.append(step)
        answer = remaining_answers.pop(0) if isinstance(step, Send) else None
        if isinstance(answer, WireError):
            raise answer
        return answer

    try:
        reply = run_steps(route(topology, SLOT, until, **options), execute)
        return [*steps, reply]
    except WireError as error:
        return [*steps, error]


def list_sends(steps: list[Any]) -> list[tuple[str, bool]]:
    """Return the host of each step that sends the command, and whether ASKING precedes it."""
    return [(step.endpoint[0], step.asking) for step in steps if isinstance(step, Send)]


@pytest.mark.parametrize(
    "key",
    LOCK_KEYS + [b"report", b"a{b}c", b"two words", b"{}odd", b"odd}"],
)
def test_slot_follows_the_specification(key: bytes) -> None:
    """The channel of the wake-ups for a key has the same slot as the key, and contains no blank."""
    assert compute_slot(key) == key_slot(key)
    channel = make_channel(find_hash_tag(key))
    assert key_slot(channel) == key_slot(key)
    assert len(channel.split()) == 1
    assert channel.startswith(b"lock:wake:{")


@pytest.mark.parametrize("is_parsed", [True, False], ids=["error class", "error text"])
def test_moved_is_remembered_and_ask_is_followed_once(is_parsed: bool) -> None:
    """A parser without support for clusters raises a ResponseError with the text of the error."""
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
    """Before each retry the slots are looked up (Refresh), after a pause that does not shrink."""
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
    """WRONGTYPE would come again at every attempt."""
    wrong_type = exceptions.ResponseError("WRONGTYPE Operation against a key")
    steps = run_route(make_topology(NODE_A), make_error(wrong_type))
    assert list_sends(steps) == [("a", False)]
    assert steps[-1].__cause__ is wrong_type


def test_endless_redirections_are_followed_with_pauses() -> None:
    """Two nodes redirect a command to each other. A Refresh step pauses in between."""
    redirections = [
        make_error(exceptions.MovedError("7 b:2")),
        make_error(exceptions.MovedError("7 a:1")),
    ] * 4
    steps = run_route(make_topology(NODE_A, NODE_B), *redirections, "reply")
    assert Refresh in [type(step) for step in steps]
    assert steps[-1] == "reply"


def test_repeated_release_does_not_report_an_expired_lease() -> None:
    """After a lost reply, a release is repeated, and its first try may have freed the lock.

    The reply 1 says that this try freed it, and -1 that it was free already. So -1 means that the
    lease had expired only if no earlier try can have been executed.
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


def test_refusal_after_a_lost_reply_says_that_a_try_was_sent() -> None:
    """The server may have executed the first try, so its effect must be undone."""
    lost_reply = make_error(exceptions.ConnectionError("cut"))
    refusal = make_error(exceptions.NoPermissionError("no permission"), sent=False)
    steps = run_route(make_topology(NODE_A), lost_reply, refusal)
    assert steps[-1] is refusal
    assert steps[-1].sent


def test_release_and_adoption_are_recognized_by_equal_scripts() -> None:
    """Two threads that read a script at once have two objects with equal content.

    A release or an adoption that is repeated after a lost reply must raise if the reply is -1. To
    adopt is to call renew.lua so that it gives the lock to another token, here "heir".
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


def test_unknown_cluster_is_asked_for_its_slots_first() -> None:
    """The topology knows a node's address, but not yet which node owns a slot."""
    topology = Topology([NODE_A])
    steps = route(topology, SLOT, now() + LONGEST_OUTAGE_SECONDS)
    assert next(steps) == Refresh(0.0)
    topology.learn_slots([[0, 16383, [None, 5]]], NODE_A)  # a node that does not know its own host
    assert list_sends([next(steps)]) == [("a", False)]
    assert topology.find_endpoint(SLOT) == ("a", 5)


def test_addresses_are_remapped() -> None:
    """The client's address_remap replaces every address that the cluster names."""
    topology = Topology([NODE_A], lambda endpoint: ("outside", endpoint[1]))
    topology.learn_slots([[0, 16383, [b"inside", 5]]], NODE_A)
    assert topology.find_endpoint(SLOT) == ("outside", 5)
    topology.record_move(SLOT, ("inside", 6))
    assert topology.find_endpoint(SLOT) == ("outside", 6)


def test_refusing_node_is_asked_last_for_the_slots() -> None:
    """A primary that has lost its peers still says that it owns its slots, so it is asked last."""
    topology = make_topology(NODE_A, NODE_B)
    down = exceptions.ClusterDownError("CLUSTERDOWN The cluster is down")
    steps = route(topology, SLOT, math.inf)
    next(steps)
    steps.throw(make_error(down))
    assert topology.endpoints == [NODE_B, NODE_A]
    topology.learn_slots([[0, 16383, [b"a", 1], [b"b", 2]]], NODE_B)
    assert topology.endpoints == [NODE_B, NODE_A]
