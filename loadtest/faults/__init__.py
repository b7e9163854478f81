"""Every fault, in the order in which they are made."""

from loadtest.faults import database, holder, lost_lock, lost_reply, network, refusing_redis
from loadtest.faults.fault import Fault

__all__ = ["FAULTS", "Fault"]

FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        *(holder.Crash, holder.Slow, holder.LateRelease, holder.Pause, holder.PauseAcquired),
        # Restart to FailoverSentinel share one ttl: with another the nodes restart
        *(holder.Clock, lost_lock.Restart, lost_lock.Eviction, lost_lock.Failover),
        *(lost_lock.SplitBrain, lost_lock.FailoverSentinel, network.Quorum, lost_reply.LostReplies),
        *(lost_reply.UnknownCommit, refusing_redis.Busy, lost_lock.RedisDown, refusing_redis.Stall),
        *(refusing_redis.Misconf, network.Partition, network.PartitionDb, network.SlowWrite),
        *(database.DbKill, holder.Shutdown, holder.ShutdownShort, database.FenceAhead),
        *(database.FenceAheadRaised, database.DbFailover, database.DbFailoverSync),
    )
}
