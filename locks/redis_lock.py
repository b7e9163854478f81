"""RedisLock: a lock on one Redis or Valkey server, first in first out, fenced, renewed.

Use it if there are many waiters, or for asyncio, a cluster or a callback on a loss. Otherwise copy
one_file.py.

A key with an expiry contains the token of the lock's holder. If the key exists, the acquire script
puts the waiter into a queue. The release script gives the lock to the first waiter that is alive
and still wants it, and wakes that waiter (wakeups.py). So a contended acquisition takes two
commands, acquire and release, whatever the number of waiters, and no newcomer overtakes a waiter.
(The first waiter of a process takes three, because it runs the acquire script again after it has
subscribed to the messages. LIMITS.md says when the order is not kept.) A thread renews the leases
(watchdog.py).

    commands of two processes that want the lock; B has subscribed before

    A   acquire              A has the lock
    B   acquire              B is queued; A's lease ends in 9.9 s; B waits in its own process
    A   release              B has the lock from now on; a message wakes B
    B   release              there are no waiters; the key is deleted
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .client_resources import ClientResources, get_shared_resources, perform, undo
from .clock import now
from .errors import Release
from .lease import Lease, new_token
from .lock import Lock
from .sans_io.acquisition import Acquisition, Grant
from .sans_io.options import Options, is_cluster
from .sans_io.protocol import ANY_HOLDER, Call, Inspection, WireError
from .sans_io.renewals import Renewal
from .sans_io.steps import run_steps

if TYPE_CHECKING:
    from .client_resources import LockResources
    from .handover import LeaseCommands


class RedisLock(Options[Lease], Lock):
    """Mutual exclusion by name on one Redis, with a fence for the storage to check.

        lock = RedisLock(client, "product:42", ttl=10)
        with lock.hold(wait=5) as lease:
            ...  # UPDATE ... SET fence = lease.fence WHERE ... AND fence < lease.fence

    If locks of one name have different ttls, the next waiter replaces a dead holder after the
    longest of these ttls at the latest.

    Args:
        client: A redis.Redis or redis.RedisCluster, or valkey-py's. Its options say where the
            server is and, by socket_timeout, how long to wait for a silent server. The lock opens
            its own connections, which all locks of one client share.
        name: What is locked: any non-empty string.
        ttl: Seconds that the lock survives a holder that stopped answering.
        key: The lock's key in Redis. Set it if another program locks the same thing with a key of
            another form, as redis-py's Lock does. Locks with the same key exclude each other. None:
            a key that is made from the name, as OneFileLock makes it.
        renew: Whether the lease of a living holder is renewed each ttl / 3.
        max_hold: Seconds after which a lease is no longer renewed. None: no limit.
        fence_ttl: Seconds for which the last fence is remembered after the last grant or release, a
            week by default. It must be longer than a holder can be paused. While a lease is
            renewed, the expiry of the fence is renewed, too, each fence_ttl / 3.
        on_lost: Called with the lease and a `LossReason` when a lease is lost, in another thread.
        metrics: Hooks for counters and histograms.

    Raises:
        TypeError: `name` is not a string, or `client` is not a blocking client.
        ValueError: `name` is empty, or `ttl`, `max_hold` or `fence_ttl` is out of its range.
    """

    def _bind_client(self, client: Any) -> None:
        """Set the resources that all locks of the client share.

        Raises TypeError for a client of asyncio.
        """
        if is_cluster(client, awaited=False):
            from .cluster.cluster_lock import ClusterResources, SlotResources

            resources: LockResources = SlotResources(
                get_shared_resources(client, ClusterResources), self.keys[0]
            )
        else:
            resources = get_shared_resources(client.connection_pool, ClientResources)
        self._resources = resources  # the resources are closed when no lock refers to them
        self._wakeups = resources.wakeups
        self._watchdog = resources.watchdog
        self._connections: Any = resources.connections

    def acquire(self, wait: float | None) -> Lease:
        """Acquire the lock, in turn with the other waiters.

        After any exception the waiter is removed from the queue, as soon as the server answers
        again.

        If the server is silent, a command fails at the end of the wait. But a command gets at least
        0.5 s, and at most the client's socket_timeout. Leaving the queue may take another 0.5 s.
        These limits apply separately to connecting and to each reply.

        Args:
            wait: Seconds to wait at most. 0: try once. None: no limit.

        Returns:
            The lease. It is renewed until its release or `max_hold`, unless the lock has
            renew=False.

        Raises:
            ValueError: `wait` is negative or not a number.
            LockTimeout: The lock was not free within the wait.
            LockBackendError: The server did not answer, or refused the command.
        """
        acquisition = Acquisition(self, self._wakeups.waiters, wait)
        lease = None
        try:
            grant = perform(self._resources, acquisition, acquisition.obtain())
            if grant is not None:
                lease = self._start_lease(acquisition.token.decode(), grant, acquisition.started_at)
        except BaseException as error:
            undo(self._resources, acquisition)
            if isinstance(error, WireError):
                raise self._make_backend_error(error) from error.__cause__
            raise
        finally:
            waited_seconds = now() - acquisition.started_at
            self.call_metrics_hook("waited", waited_seconds, lease is not None)
        if lease is None:
            raise self._make_timeout_error(wait)
        return lease

    def locked(self) -> bool:
        """Return whether the lock has a holder now.

        Raises:
            LockBackendError: The server did not answer, or refused the command.
        """
        return self.inspect().owner is not None

    def inspect(self) -> Inspection:
        """Return the holder of the lock and its waiters, and change nothing.

        Raises:
            LockBackendError: The server did not answer, or refused the command.
        """
        return Inspection.parse(self._call_server(self.build_call("inspect")))

    def force_release(self) -> bool:
        """Take the lock away from its holder and give it to the next waiter. For operators.

        The holder may still be at work: it notices the loss at its next renewal, or at its deadline
        if its lease is not renewed. The storage refuses the holder's fence once it has seen the
        fence of the next holder. If the lock is free already, nothing changes.

        Returns:
            Whether the lock had a holder.

        Raises:
            LockBackendError: The server did not answer, or refused the command.
        """
        return bool(self._call_server(self.build_release(ANY_HOLDER)) == 1)

    def adopt(self, handed: str, *, token: str | None = None) -> Lease:
        """Continue a lease that another process handed over; the first adopter gets it.

        The lease is renewed and released in this process from now on.

        Args:
            handed: The text that `lease.hand_over()` returned in the other process.
            token: The token of the lease in this process. None: a unique token. A release of a
                token that you give is not repeated if the server does not answer. So the lock may
                then stay taken until its ttl ends.

        Returns:
            The lease.

        Raises:
            ValueError: `handed` is not a lease of this lock, or the token is empty or `*`.
            LockLost: The lease has ended, or was adopted before.
            LockBackendError: The server did not answer, or refused the command.
        """
        started_at = now()
        is_unique = token is None
        if token is None:
            token = new_token()
        commands = self._make_lease_commands()
        grant = commands.run(commands.adopt(handed, token, unique=is_unique))
        return self._start_lease(token, grant, started_at, unique=is_unique)

    def _start_lease(
        self, token: str, grant: Grant, started_at: float, *, unique: bool = True
    ) -> Lease:
        """Return the lease of a granted lock, and have the watchdog renew it.

        `unique` is True if the token is used for this acquisition only.
        """
        fence, deadline = grant
        lease = Lease(
            name=self.name,
            token=token,
            fence=fence,
            deadline=deadline,
            release=self._release,
            waited_seconds=now() - started_at,
            on_lost=self._report_loss if self._reports_losses else None,
            operations=self._make_lease_commands,
            unique=unique,
        )
        self._watchdog.add(Renewal(lease, self))
        return lease

    def _make_lease_commands(self) -> LeaseCommands:
        """Return the commands for the leases of this lock, which run in the calling thread."""
        from .handover import LeaseCommands  # also extend() and owned(); most leases need neither

        return LeaseCommands(self, self._watchdog, lambda steps: run_steps(steps, self._call))

    def _release(self, lease: Lease) -> Release:
        """Release the lease and return the outcome.

        If there is no reply, the watchdog repeats the release, unless the user chose the token: a
        later holder may use the same token.
        """
        try:
            self._watchdog.remove((self.keys[0], lease.token))
            reply = self._call(self.build_release(lease.token))
        except BaseException as error:  # even one that a signal handler raised
            if lease.unique:
                self._watchdog.abandon(lease.token, self)
            if not isinstance(error, WireError):
                raise
            reply = error
        return self._evaluate_release(lease, reply)

    def _call_server(self, command: Call) -> Any:
        """Run a script and return its reply. Raises LockBackendError instead of WireError."""
        try:
            return self._call(command)
        except WireError as error:
            raise self._make_backend_error(error) from error.__cause__

    def _call(self, command: Call) -> Any:
        """Run a script and return its reply. Raises WireError."""
        return self._connections.call(command, timeout=None)
