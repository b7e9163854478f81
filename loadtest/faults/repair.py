"""Restores the testbed after a fault of which a step failed."""

from __future__ import annotations

import signal

from loadtest.faults import measure
from loadtest.faults.testbed import TTL, Testbed, ttl_settings
from loadtest.stack.stack import REDLOCK_SERVERS


def repair(testbed: Testbed) -> None:
    """Start both nodes anew with their own settings, and an empty Redis; stop every other server,
    and let the proxies pass everything on.

    Raises StackError, redis.RedisError, OSError or EmbeddedError when a part does not come back.
    """
    for node in testbed.nodes:
        node.kill()  # SIGKILL ends stopped processes too
    if testbed.sentinels is not None:
        testbed.sentinels.stop()
        testbed.sentinels = None
    while len(testbed.valkeys) > 1 + REDLOCK_SERVERS:
        testbed.valkeys.pop().stop(signal.SIGKILL)
    testbed.main.replica_of = None
    testbed.restart_empty()
    for server in testbed.valkeys[1:]:
        if not measure.answers(server):
            server.stop(signal.SIGKILL)
            testbed.start_again(server)
    for proxy in testbed.redis:
        proxy.switch(testbed.address(testbed.main))
    testbed.postgres.switch(testbed.postgres_socket)
    for proxy in (*testbed.redis, *testbed.redlock, testbed.postgres):
        proxy.pass_on()
    testbed.settings = ttl_settings(TTL)
    testbed.restart_both()
