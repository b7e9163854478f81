"""Exercise 10. Two masters, five masters.

What comes out for each lock under each fault: "exact", "oversold" or "deadlock"? The table of
`make faults` knows; answer first, then look it up.
"""

from __future__ import annotations

# TODO: fill in all eight.
ANSWERS = {
    ("token", "failover"): "oversold",
    ("token-watchdog", "restart"): "oversold",
    ("redlock", "pause"): "oversold",
    ("redlock", "restart"): "oversold",
    ("zookeeper", "pause"): "oversold",
    ("redis", "failover"): "exact",
    ("setnx", "eviction"): "exact",
    ("row-lock", "redis-down"): "exact",
}
# END
