"""Every fault, in the order in which `make faults` injects them."""

from loadtest.faults.fault import Fault
from loadtest.faults.kinds.busy import BusyFault
from loadtest.faults.kinds.clock import ClockFault
from loadtest.faults.kinds.crash import CrashFault
from loadtest.faults.kinds.db_failover import DbFailoverFault, DbFailoverSyncFault
from loadtest.faults.kinds.db_kill import DbKillFault
from loadtest.faults.kinds.eviction import EvictionFault
from loadtest.faults.kinds.failover import FailoverFault, FailoverSentinelFault
from loadtest.faults.kinds.late_release import LateReleaseFault
from loadtest.faults.kinds.lost_reply import LostReplyFault
from loadtest.faults.kinds.misconf import MisconfFault
from loadtest.faults.kinds.partition import PartitionFault
from loadtest.faults.kinds.partition_db import PartitionDbFault
from loadtest.faults.kinds.pause import PauseAcquiredFault, PauseFault
from loadtest.faults.kinds.quorum import QuorumFault
from loadtest.faults.kinds.redis_down import RedisDownFault
from loadtest.faults.kinds.restart import RestartFault
from loadtest.faults.kinds.shutdown import ShutdownFault, ShutdownShortFault
from loadtest.faults.kinds.slow import SlowFault
from loadtest.faults.kinds.slow_write import SlowWriteFault
from loadtest.faults.kinds.split_brain import SplitBrainFault
from loadtest.faults.kinds.stall import StallFault
from loadtest.faults.kinds.unknown_commit import UnknownCommitFault

__all__ = ["FAULTS", "FAULT_CLASSES", "Fault"]

FAULT_CLASSES: list[type[Fault]] = [
    CrashFault,
    SlowFault,
    LateReleaseFault,
    PauseFault,
    PauseAcquiredFault,
    ClockFault,
    # The faults from here to FailoverSentinelFault are neighbours because they share a ttl of 5 s:
    # the nodes are restarted whenever the ttl changes.
    RestartFault,
    EvictionFault,
    FailoverFault,
    SplitBrainFault,
    FailoverSentinelFault,
    QuorumFault,
    LostReplyFault,
    UnknownCommitFault,
    BusyFault,
    RedisDownFault,
    StallFault,
    MisconfFault,
    PartitionFault,
    PartitionDbFault,
    SlowWriteFault,
    DbKillFault,
    ShutdownFault,
    ShutdownShortFault,
    DbFailoverFault,
    DbFailoverSyncFault,
]
FAULTS: dict[str, type[Fault]] = {fault_class.name: fault_class for fault_class in FAULT_CLASSES}
