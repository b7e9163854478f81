"""Every fault, in the order in which they are made."""

from loadtest.faults.database import (
    DbFailover,
    DbFailoverSync,
    DbKill,
    FenceAhead,
    FenceAheadRaised,
)
from loadtest.faults.ended_node import Crash, Shutdown, ShutdownShort
from loadtest.faults.fault import Fault
from loadtest.faults.late_holder import Clock, LateRelease, Pause, PauseAcquired, Slow
from loadtest.faults.lost_lock import (
    Eviction,
    Failover,
    FailoverSentinel,
    RedisDown,
    Restart,
    SplitBrain,
)
from loadtest.faults.lost_reply import LostReplies, UnknownCommit
from loadtest.faults.network import Partition, PartitionDb, Quorum, SlowWrite
from loadtest.faults.refusing_redis import Busy, Misconf, Stall

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
