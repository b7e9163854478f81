"""Every fault, in the order in which they are made."""

from __future__ import annotations

from loadtest.faults.busy import Busy
from loadtest.faults.clock import Clock
from loadtest.faults.crash import Crash, DbKill
from loadtest.faults.db_failover import DbFailover, DbFailoverSync
from loadtest.faults.eviction import Eviction
from loadtest.faults.failover import Failover, FailoverSentinel, SplitBrain
from loadtest.faults.fault import Fault
from loadtest.faults.fence_ahead import FenceAhead, FenceAheadRaised
from loadtest.faults.lost_reply import LostReplies
from loadtest.faults.misconf import Misconf
from loadtest.faults.partition import Partition, Quorum
from loadtest.faults.partition_db import PartitionDb
from loadtest.faults.pause import Pause, PauseAcquired
from loadtest.faults.restart import RedisDown, Restart
from loadtest.faults.shutdown import Shutdown, ShutdownShort
from loadtest.faults.slow import LateRelease, Slow
from loadtest.faults.slow_write import SlowWrite
from loadtest.faults.stall import Stall
from loadtest.faults.unknown_commit import UnknownCommit

__all__ = ["FAULTS", "Fault"]

FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        *(Crash, Slow, LateRelease, Pause, PauseAcquired, Clock),
        *(Restart, Eviction, Failover, SplitBrain, FailoverSentinel),  # they share one ttl
        *(Quorum, LostReplies, UnknownCommit, Busy, RedisDown, Stall, Misconf),
        *(Partition, PartitionDb, SlowWrite, DbKill, Shutdown, ShutdownShort),
        *(FenceAhead, FenceAheadRaised, DbFailover, DbFailoverSync),
    )
}
