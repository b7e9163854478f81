"""A program that uses a lock in greenlets. It imports the locks before gevent patches Python."""

import sys

import redis
from gevent import monkey

from .. import RedisLock  # as gunicorn --preload does, before its worker patches

monkey.patch_all()

import gevent  # noqa: E402


def main(port: int) -> None:
    """Use a lock in greenlets, which wait, renew and give up. Print "done" if all goes well."""
    client = redis.Redis(port=port)
    lock = RedisLock(client, "greenlets", ttl=0.6)
    served: list[int] = []

    def hold_and_record(number: int) -> None:
        with lock.hold(wait=30) as lease:
            served.append(number)
            gevent.sleep(0.002)
            lease.check()

    with lock.hold(wait=5) as lease:
        greenlets = []
        for number in range(20):
            greenlets.append(gevent.spawn(hold_and_record, number))
            # Wait until this greenlet is in the queue.
            while len(lock.inspect().waiters) <= number:
                gevent.sleep(0.001)
        first_deadline = lease.deadline
        # Wait for a renewal. The renewing thread must not block gevent's hub.
        while lease.deadline == first_deadline:
            gevent.sleep(0.01)
        assert served == []
    gevent.joinall(greenlets, timeout=20, raise_error=True)
    assert served == list(range(20)), served

    # A waiter that is killed or times out leaves the queue.
    with lock.hold(wait=5):
        killed_greenlet = gevent.spawn(lock.acquire, 30)
        while not lock.inspect().waiters:
            gevent.sleep(0.001)
        killed_greenlet.kill()
        assert lock.inspect().waiters == ()
        impatient_greenlet = gevent.spawn(
            lambda: gevent.with_timeout(0.1, lock.acquire, 30, timeout_value=None)
        )
        assert impatient_greenlet.get(timeout=5) is None
        assert lock.inspect().waiters == ()
    print("done")


if __name__ == "__main__":
    main(int(sys.argv[1]))
