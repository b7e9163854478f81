"""The subscription that wakes the waiters of one event loop."""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from ..clock import now
from ..connection import Address
from ..sans_io.acquisition import ChannelWaiters
from ..sans_io.protocol import (
    ROLE_COMMAND,
    IsReplica,
    WireError,
    build_subscriber_count_command,
    is_replica,
    is_subscription_elsewhere,
    make_channel,
    pack_command,
)
from ..sans_io.renewals import Renewals
from ..wakeups import PROBE_SECONDS, VERIFY_SECONDS
from .connections import AsyncConnections, reply_or_exception
from .link import Link

logger = logging.getLogger(__name__)


class AsyncWakeUps:
    """The waiters of one event loop for one server's locks, and their subscription there."""

    def __init__(self, address: Address, renewals: Renewals, *, tag: bytes = b"") -> None:
        self.waiters = ChannelWaiters(asyncio.Queue, renewals)
        self._tag = tag  # in a cluster: a hash tag of the waiters' slot, for the channel's name
        self._in_cluster = bool(tag)
        self._address = address
        self._link: Link | None = None
        self._subscription: asyncio.Future[None] | None = None  # done when confirmed
        self._timer: asyncio.TimerHandle | None = None  # of the next check of the connection
        self._has_received = False  # any message since the last check of the connection
        self._probing = False  # a PING was sent, and no message has been received since
        self._awaits_role = False  # the next message is the reply to ROLE
        self._verification: asyncio.Task[None] | None = None
        #: Called when the server became a replica or was replaced: retires other connections to it.
        self.on_server_became_replica: Callable[[], None] = lambda: None

    async def listen(self, until: float) -> None:
        """Subscribe if needed, and wait for the confirmation, but not beyond `until`.

        `until` is a time of our clock. If it is reached first, this returns without a confirmation.
        Raises WireError if subscribing failed.
        """
        if self.waiters.is_listening:
            return
        if self._subscription is None:
            # A new channel for each subscription, so that no other server has a subscription to it:
            # see Wake.compute_deadline().
            self.waiters.channel = make_channel(self._tag)
            self._subscription = asyncio.get_running_loop().create_future()
            try:
                self._link = Link(
                    self._find_address(),
                    on_open=self._on_open,
                    on_reply=self._on_message,
                    on_end=self._on_end,
                )
            except OSError as error:
                self._on_end(error)
                raise WireError(error, sent=False) from error
        subscription = self._subscription
        seconds_left = max(0.0, until - now())
        timeout = None if seconds_left == math.inf else seconds_left
        await asyncio.wait({subscription}, timeout=timeout)
        if subscription.done():
            subscription.result()  # raises WireError if subscribing failed

    def resubscribe(self) -> None:
        """Close the subscription's connection, because the server may have been demoted.

        This makes all waiters poll, and subscribe again on a new connection.
        """
        if self._link is not None:
            self._link.close()

    async def aclose(self) -> None:
        """End the subscription.

        This awaits only if needed, because a coroutine that awaits while asyncio.run() ends the
        loop might never be resumed.
        """
        if self._verification is not None:
            self._verification.cancel()  # not awaited: the task closes its connection itself
        if self._link is not None:
            await self._link.aclose()

    def _find_address(self) -> Address:
        """Return the address of the server to subscribe at. In a cluster it changes."""
        return self._address

    def _on_open(self) -> None:
        """Subscribe. Unless this is a cluster, ask for the server's role first."""
        assert self._link is not None
        self._awaits_role = not self._in_cluster  # in a cluster, AsyncSlotWakeUps finds the primary
        if self._awaits_role:
            self._link.write(pack_command(*ROLE_COMMAND))
        subscribe = "SSUBSCRIBE" if self._in_cluster else "SUBSCRIBE"
        self._link.write(pack_command(subscribe, self.waiters.channel))
        # As if a PING had been sent: the first check then closes the connection unless the
        # subscription has been confirmed.
        self._probing = True
        self._schedule_check(min(PROBE_SECONDS, self._address.timeout))

    def _on_message(self, message: Any) -> None:
        """Pass a message to the waiters. Close the link at an error or if it leads to a replica."""
        if self._awaits_role:
            self._awaits_role = False
            if is_replica(message) and self._link is not None:
                self._link.close(IsReplica())
            return
        self._has_received = True
        self._probing = False
        try:
            if isinstance(message, Exception):
                raise message
            self.waiters.receive(message)
        except Exception as error:
            if self._link is not None:
                self._link.close(error)
            return
        if message[0] in (b"subscribe", b"ssubscribe") and self._subscription is not None:
            self.waiters.is_listening = True
            self._subscription.set_result(None)

    def _schedule_check(self, seconds: float) -> None:
        """Check the connection after this number of seconds."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._check_connection)

    def _check_connection(self) -> None:
        """Probe a silent connection, and close it if it does not answer the probe in time.

        A silent connection is also closed if the Sentinels have named another master or, in a
        cluster, if its slot has no waiters left.
        """
        link = self._link
        if link is None:
            return
        if not self._has_received or not self.waiters.is_listening:
            if self._probing or link.has_master_moved():
                link.close(ConnectionError("the subscription is silent"))
                return
            if self._in_cluster and not self.waiters.mailboxes:
                link.close()  # the slot has no waiters left
                return
            if self.waiters.mailboxes:
                self._verification = asyncio.get_running_loop().create_task(
                    self._verify(link), name="locks.verifying"
                )
            link.write(pack_command("PING"))
            self._probing = True
        self._has_received = False
        self._schedule_check(PROBE_SECONDS)

    async def _verify(self, link: Link) -> None:
        """Close the link if commands now go to another server than the subscription.

        A new connection shows this: it reads the server's role, and how many subscribers the
        channel has there. If it leads to another server or to a replica,
        on_server_became_replica is called.
        """
        new_connection = AsyncConnections(self._address)
        commands = ROLE_COMMAND, build_subscriber_count_command(self.waiters.channel)
        try:
            # Errors are ignored, because the link is probed by a PING in any case.
            role, subscribers = [
                await reply_or_exception(new_connection.run(*command, timeout=VERIFY_SECONDS))
                for command in commands
            ]
        finally:
            await new_connection.aclose()
        moved = is_subscription_elsewhere(role, subscribers)
        if moved or is_replica(role):
            self.on_server_became_replica()
        if moved:
            link.close(ConnectionError("commands now go to another server"))

    def _on_end(self, error: BaseException) -> None:
        """Make all waiters poll after the connection's end. Fail an unconfirmed subscription."""
        subscription = self._subscription
        self._subscription = None
        self._link = None
        if self._timer is not None:
            self._timer.cancel()
        if subscription is not None and not subscription.done():
            subscription.set_exception(WireError(error, sent=True))
            # This retrieves the exception, so that asyncio does not warn if no task awaits it.
            subscription.exception()
        has_waiters = bool(self.waiters.mailboxes)
        level = logging.WARNING if has_waiters else logging.INFO
        logger.log(level, "no wake-ups until the next waiter subscribes: %s", error)
        self.waiters.make_all_poll()
