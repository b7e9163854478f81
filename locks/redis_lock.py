"""RedisLock: a lock on one Redis or Valkey server, first in first out, fenced, renewed.

To copy where many wait, or for asyncio, a cluster or a notice of loss; else one_file.py will do.

The lock's holder is in the data, in a key with an expiry. Whoever finds it taken queues in
the same script; the script that releases it gives it to the first waiter that is alive and still
wants it, and wakes that one (wakeups.py). So a contended acquisition is two commands, nobody
barges in, and it costs the same however many wait. A thread renews what is held (watchdog.py).

    commands of two processes that want the lock

    A   acquire              the lock is ours
    B   acquire              queued, A's lease ends in 9.9 s; B waits in its own process
    A   release              the lock is B's from here on; a message wakes it
    B   release              nobody waits: deleted
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import shared
from .acquisition import Acquisition, Grant
from .errors import Release, emit
from .lease import Lease, new_token
from .lock import Lock, Options, is_cluster
from .protocol import ANY_HOLDER, Call, Inspection, WireError
from .renewals import Renewal
from .support import now, run

if TYPE_CHECKING:
    from .handover import Keeping


class RedisLock(Options[Lease], Lock):
    """Mutual exclusion by name on one Redis, with a fence for the storage to check.

    client    a redis.Redis or redis.RedisCluster (or valkey-py's), which says where the server is
              and, by its socket_timeout, how long a silent one is waited for; the lock opens
              connections of its own, which all locks of one client share
    name      what is locked, any non-empty text
    key       the lock's key in Redis, where another program locks the same with a key of its own
              making, as redis-py's Lock does with its name; not given: one that nothing else uses
    ttl       seconds that the lock survives a holder that stopped answering
    renew     whether a living holder's lease is renewed each ttl / 3
    max_hold  seconds after which a lease is renewed no more, None: as long as its process lives
    fence_ttl seconds for which the last fence is remembered after its lock was last used, a week
              unless given; longer than any holder may be paused
    on_lost   called with the lease and a `LossReason` when it is lost, in another thread
    metrics   hooks, see `Metrics`

        lock = RedisLock(client, "product:42", ttl=10)
        with lock.hold(wait=5) as lease:
            ...  # UPDATE ... SET fence = lease.fence WHERE ... AND fence < lease.fence

    Raises ValueError and TypeError for arguments that cannot work. With unequal ttls under one
    name, a dead holder is replaced after the longest of them at the latest.
    """

    def _connect(self, client: Any) -> None:
        if is_cluster(client, awaited=False):
            from .cluster.threads import Cluster, Slot

            parts: shared.Parts = Slot(shared.shared_of(client, Cluster), self.keys[0])
        else:
            parts = shared.shared_of(client.connection_pool, shared.Shared)
        self._shared = parts  # keeps them alive
        self._wakeups = parts.wakeups
        self._watchdog = parts.watchdog
        self._server: Any = parts.connections

    def acquire(self, wait: float | None) -> Lease:
        """Take the lock, queueing for at most `wait` seconds (None: as long as it takes).

        Raises LockTimeout when the wait is over, LockBackendError when the server is not reached
        or refuses. In both cases, and on any other exception, nothing is left in the queue once
        the server answers again. A silent server is waited for until the end of the wait, but at
        least 0.5 s and at most the client's socket_timeout; then once more for 0.5 s.
        """
        acquisition = Acquisition(self, self._wakeups.waiters, wait)
        lease = None
        try:
            granted = shared.perform(self._shared, acquisition, acquisition.obtain())
            if granted is not None:
                lease = self._lease(acquisition.token.decode(), granted, acquisition.started)
        except BaseException as error:
            shared.undo(self._shared, acquisition)
            if isinstance(error, WireError):
                raise self._unknown(error) from error.__cause__
            raise
        finally:
            waited = now() - acquisition.started
            emit(self.metrics, "waited", self.name, waited, lease is not None)
        if lease is None:
            raise self._not_free(wait)
        return lease

    def locked(self) -> bool:
        """Whether anybody holds the lock now. Raises LockBackendError."""
        return self.inspect().owner is not None

    def inspect(self) -> Inspection:
        """Who holds the lock and who waits for it. Changes nothing. Raises LockBackendError."""
        return Inspection.parse(self._known(self.command("inspect")))

    def force_release(self) -> bool:
        """Take the lock away from its holder and give it to the next waiter. For operators.

        Returns whether anybody held it. The holder may still be at work: it finds out at its next
        renewal, and the storage refuses its fence once it has seen the next holder's. Raises
        LockBackendError.
        """
        return bool(self._known(self.release_of(ANY_HOLDER)) == 1)

    def adopt(self, handed: str, *, token: str | None = None) -> Lease:
        """Go on with a lease that another process handed over; `handed` is what it returned.

        Only one can: the first. The lease is renewed and released here from now on.

        token  for the lease in this process; not given: one that nobody else has. Where a given
               one gets no answer, here or at its release, the lock may stay taken for a ttl

        Raises ValueError for a text that is no lease of this lock, and for the token `*`; LockLost
        when the lease is over, or was adopted before; LockBackendError.
        """
        mine, started, unique = token or new_token(), now(), token is None
        keeping = self._keeping()
        granted = keeping.do(keeping.adopt(handed, mine, unique=unique))
        return self._lease(mine, granted, started, unique=unique)

    def _lease(self, token: str, granted: Grant, started: float, *, unique: bool = True) -> Lease:
        fence, deadline = granted
        lease = Lease(
            name=self.name,
            token=token,
            fence=fence,
            deadline=deadline,
            release=self._release,
            waited_seconds=now() - started,
            on_lost=self._lost if self.on_lost or self.metrics else None,
            keeping=self._keeping,
            unique=unique,
        )
        self._watchdog.add(Renewal(lease, self))
        return lease

    def _keeping(self) -> Keeping:
        from .handover import Keeping

        return Keeping(self, self._watchdog, lambda steps: run(steps, self._call))

    def _release(self, lease: Lease) -> Release:
        try:
            self._watchdog.remove((self.keys[0], lease.token))
            reply = self._call(self.release_of(lease.token))
        except BaseException as error:  # also what a signal handler raised before it was sent
            if lease.unique:
                self._watchdog.abandon(lease.token, self)
            if not isinstance(error, WireError):
                raise
            reply = error
        return self._found(lease, reply)

    def _known(self, command: Call) -> Any:
        """The script's reply. Raises LockBackendError."""
        try:
            return self._call(command)
        except WireError as error:
            raise self._unknown(error) from error.__cause__

    def _call(self, command: Call) -> Any:
        return self._server.call(command, within=None)
