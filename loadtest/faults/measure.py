"""Measurements of processes, locks, clocks and servers, which prove that a fault happened."""

import os
import re
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import urlopen

import psutil
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loadtest.stack.client import StrategyFacts
from servers import embedded
from servers.proxy.proxy import Proxy

#: Database number of the locks on the main Redis: the one after REDIS_URL's (shop/settings.py).
LOCKS_DB = 1
#: Database number of the locks on Redlock's servers: the default, as REDLOCK_URLS has no number.
REDLOCK_DB = 0
#: States of a process that has ended.
ENDED_STATES = {psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE}


def list_pids_in_session(leader_pid: int) -> list[int]:
    """Return the pids of a session's processes without zombies, the leader's first if it runs."""
    pids = []
    for pid in sorted(psutil.pids()):
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(pid) != leader_pid:
                continue
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                pids.append(pid)
    if leader_pid in pids:
        pids.remove(leader_pid)
        pids.insert(0, leader_pid)
    return pids


def read_process_state(pid: int) -> str:
    """Return the state of a process as psutil names it; `dead` if there is no such process."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status()
    return psutil.STATUS_DEAD


def run_command(
    server: embedded.Valkey | Proxy, *command: Any, db: int = LOCKS_DB, timeout: float = 5.0
) -> Any:
    """Send a command to a Redis, or to the Redis behind a proxy, and return the reply.

    A command without a reply is not repeated. Raises redis.RedisError.
    """
    no_retry = Retry(NoBackoff(), 0)
    with redis.Redis(port=server.port, db=db, retry=no_retry, socket_timeout=timeout) as client:
        return client.execute_command(*command)


def count_context_switches(pids: Iterable[int]) -> dict[int, int]:
    """Return the number of context switches of each process since its start; 0 if it has ended.

    The count of a process that stays stopped (SIGSTOP) does not change.
    """
    switches = dict.fromkeys(pids, 0)
    for pid in switches:
        with suppress(psutil.NoSuchProcess):
            switches[pid] = sum(psutil.Process(pid).num_ctx_switches())
    return switches


def list_lock_keys(lock: str, product: str) -> tuple[str, str]:
    """Return the two possible keys of a product's lock: the usual one, and that of RedisLock.

    lock  the name of the strategy
    """
    # RedisLock puts the name in braces: Redis Cluster stores keys with the same text in braces on
    # the same server.
    hash_tag = f"{{{lock}:{product}}}"
    return f"lock:{lock}:{product}", f"lock:{hash_tag}"


def read_lock_seconds_left(
    servers: Sequence[embedded.Valkey], strategy: StrategyFacts, product: str
) -> float | None:
    """Return the seconds after which a product's lock expires if it is not renewed.

    If several servers have the lock, the longest of their times is returned. None if the lock never
    expires, or if no Redis has it.

    servers  the main Redis, followed by Redlock's five servers
    """
    db = LOCKS_DB
    lock_servers = servers[:1]
    if strategy["backend"] == "redlock":
        db = REDLOCK_DB
        lock_servers = servers[1:]
    remaining_seconds = []
    for server in lock_servers:
        for key in list_lock_keys(strategy["name"], product):
            ttl_ms = int(run_command(server, "PTTL", key, db=db))
            has_no_ttl = ttl_ms == -1  # Redis answers -2 if there is no such key
            if ttl_ms >= 0:
                remaining_seconds.append(ttl_ms / 1000)
            elif has_no_ttl and strategy["takes_over"]:
                # The key's value is the time, in ms, after which waiters take the lock over.
                expires_at_ms = run_command(server, "GET", key, db=db)
                if expires_at_ms:  # None if the lock was released meanwhile
                    remaining_seconds.append(int(expires_at_ms) / 1000 - time.time())
    return max(remaining_seconds, default=None)


def read_longest_zookeeper_timeout(address: str) -> float | None:
    """Return the longest timeout of ZooKeeper's sessions, in seconds.

    None if ZooKeeper has no session.

    address  ZooKeeper's host:port
    """
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"cons")  # lists the connections, with their timeouts as to=<ms>
        with connection.makefile("rb") as reply:
            text = reply.read().decode()
    timeouts_ms = re.findall(r"[(,]to=([0-9]+)", text)
    return max((int(timeout_ms) / 1000 for timeout_ms in timeouts_ms), default=None)


def read_clock_lead_seconds(url: str) -> float:
    """Return the seconds by which a node's clock is ahead of this process's clock.

    The node's clock is read from the Date header of an answer, which has whole seconds. Raises
    OSError if the node does not answer.
    """
    with urlopen(f"{url}/healthz", timeout=5) as answer:
        return parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()


def read_redis_run_id(server: embedded.Valkey | Proxy, timeout: float = 0.3) -> str:
    """Return the run_id of a Redis, or of the Redis behind a proxy.

    Redis has a new run_id after each start. The run_id is empty if Redis does not answer within
    `timeout` seconds; the default is short, because a Redis that is cut off never answers.
    """
    try:
        return str(run_command(server, "INFO", "server", timeout=timeout)["run_id"])
    except redis.RedisError:
        return ""
