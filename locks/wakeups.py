"""The subscription that wakes the waiters of one client of a process.

The first waiter starts a thread, which listens on a connection to one channel of this client. (In a
cluster each slot with waiters has a thread and a channel.) The release script publishes `token
fence clock` on that channel, and the thread puts the message into the mailbox of the waiter with
that token. So a waiter needs no connection. When a process dies, its connection is closed and its
channel loses its subscriber, so the release script skips its waiters.

A wake-up may be lost, but the grant is in the data of the server. So waiters poll when the holder's
lease ends, as LockWaiters in sans_io/acquisition.py says, and all of them poll when the
subscription breaks. Wake.compute_deadline() in sans_io/protocol.py says why a wake-up can be
trusted.
"""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from .clock import now
from .connection import (
    Address,
    hang_up,
    has_master_moved,
    open_connection,
    run_command,
    run_on_new_connection,
    set_timeout,
)
from .lazy import get_or_create
from .sans_io.acquisition import ChannelWaiters
from .sans_io.protocol import (
    ROLE_COMMAND,
    IsReplica,
    Wake,
    WireError,
    build_subscriber_count_command,
    has_class_named,
    is_replica,
    is_subscription_elsewhere,
    make_channel,
)
from .sans_io.renewals import Renewals

logger = logging.getLogger(__name__)

#: Seconds without a message after which the connection is probed. After as many seconds without an
#: answer to the probe it is closed.
PROBE_SECONDS = 5.0
#: Time that a server may take for each reply that shows where the subscription should be.
VERIFY_SECONDS = 0.5

Mailbox: TypeAlias = "queue.SimpleQueue[Wake | None]"  # None: poll


class WakeUps:
    """The waiters of one client of this process on one server, and the thread that wakes them."""

    def __init__(self, address: Address, renewals: Renewals, *, tag: bytes = b"") -> None:
        self._address = address
        self._renewals = renewals
        self._tag = tag  # in a cluster: a hash tag of the waiters' slot, for the channel's name
        self._in_cluster = bool(tag)
        self._closed = False
        #: Called when the server became a replica or was replaced, to close its other connections.
        self.on_server_became_replica: Callable[[], None] = lambda: None
        self.reset()

    def reset(self) -> None:
        """Set the initial state, without waiters or a subscription. Also used in a forked child."""
        self.waiters = ChannelWaiters(queue.SimpleQueue, self._renewals)
        for lazy_attribute in ("_subscription_changed", "_poll_semaphore"):
            vars(self).pop(lazy_attribute, None)  # get_or_create() makes a new one at the next use
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._error: WireError | None = None

    def after_fork(self) -> None:
        """Leave the subscription to the parent, and start without waiters. Runs in the child."""
        if self._connection is not None:
            self._connection.disconnect()
        self.reset()

    def resubscribe(self) -> None:
        """Close the subscription's connection, because the server may have been demoted.

        This makes all waiters poll, and subscribe again on a new connection.
        """
        if self._connection is not None:
            hang_up(self._connection)

    def close(self) -> None:
        """End the thread, because there will be no more waiters."""
        self._closed = True
        self.resubscribe()

    def listen(self, until: float) -> None:
        """Subscribe if needed, and wait for the confirmation, but not beyond `until`.

        `until` is a time of our clock. If it is reached first, this returns without a confirmation.
        Raises WireError if subscribing failed.
        """
        if self.waiters.is_listening:
            return
        subscription_changed = get_or_create(self, "_subscription_changed", threading.Condition)
        with subscription_changed:
            if self._thread is None:
                self._error = None
                thread = threading.Thread(
                    target=self._run,
                    args=(subscription_changed,),
                    name="locks.wakeups",
                    daemon=True,
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    raise WireError(error, sent=False) from error
                self._thread = thread
            seconds_left = max(0.0, min(until - now(), threading.TIMEOUT_MAX))
            subscription_changed.wait_for(
                lambda: self.waiters.is_listening or self._thread is None, seconds_left
            )
            if self._error is not None and not self.waiters.is_listening:
                raise self._error

    def _run(self, subscription_changed: threading.Condition) -> None:
        """Subscribe to a new channel, and receive messages until the subscription ends.

        Then make all waiters poll. `subscription_changed` is notified when the subscription begins
        and ends.
        """
        waiters = self.waiters
        # A new channel for each subscription, so that this process is subscribed to the channel at
        # one server only. Wake.compute_deadline() relies on that.
        waiters.channel = make_channel(self._tag)
        connection: Any = None
        error: Exception = ConnectionError("the subscription ended")
        try:
            self._connection = connection = self._find_address().make_connection()
            open_connection(connection, min(PROBE_SECONDS, self._address.timeout))
            # In a cluster this is not needed: SlotWakeUps has looked up the primary.
            if not self._in_cluster and is_replica(run_command(connection, *ROLE_COMMAND)):
                raise IsReplica()
            subscribe = "SSUBSCRIBE" if self._in_cluster else "SUBSCRIBE"
            connection.send_command(subscribe, waiters.channel)
            connection.read_response()
            set_timeout(connection, PROBE_SECONDS)
            with subscription_changed:
                waiters.is_listening = True
                subscription_changed.notify_all()
            self._receive_messages(connection)
        except Exception as subscription_error:
            error = subscription_error
            level = logging.WARNING if waiters.mailboxes else logging.INFO
            logger.log(level, "no wake-ups until the next waiter subscribes: %s", error)
        finally:
            if connection is not None:
                connection.disconnect()
            with subscription_changed:
                waiters.is_listening = False
                self._thread = None
                self._connection = None
                self._error = WireError(error, sent=True)
                subscription_changed.notify_all()
            waiters.make_all_poll()

    def _find_address(self) -> Address:
        """Return the address of the server to subscribe at. SlotWakeUps overrides this method."""
        return self._address

    def _receive_messages(self, connection: Any) -> None:
        """Pass messages to the waiters, and send a PING if no message comes for a while.

        Returns after close() or, in a cluster, when the slot has no waiters left. Raises an
        exception if the connection fails, the PING is not answered, or commands now go to another
        server.
        """
        ping_is_unanswered = False
        while not self._closed:
            try:
                message = connection.read_response(disconnect_on_error=False)
            except Exception as error:
                is_timeout = has_class_named(error, "TimeoutError")
                if ping_is_unanswered or not is_timeout or self._is_on_wrong_server(connection):
                    raise
                if self._in_cluster and not self.waiters.mailboxes:
                    return  # the slot has no waiters left
                connection.send_command("PING")
                ping_is_unanswered = True
                continue
            ping_is_unanswered = False
            self.waiters.receive(message)

    def _is_on_wrong_server(self, connection: Any) -> bool:
        """Return whether commands now go to another server than the subscription.

        If there are waiters, a new connection is opened to find out, because new connections lead
        to the current master. If the new connection leads to another server than the subscription,
        or to a replica, on_server_became_replica is called. In a cluster SlotWakeUps overrides this
        method.
        """
        if self.waiters.mailboxes:
            commands = ROLE_COMMAND, build_subscriber_count_command(self.waiters.channel)
            try:
                role, subscribers = run_on_new_connection(
                    self._address, *commands, timeout=VERIFY_SECONDS
                )
            except Exception as error:  # ignored: a PING on the subscription follows in any case
                logger.debug("the server of the subscription cannot be verified: %s", error)
            else:
                moved = is_subscription_elsewhere(role, subscribers)
                if moved or is_replica(role):
                    self.on_server_became_replica()
                if moved:
                    return True
        return has_master_moved(connection)
