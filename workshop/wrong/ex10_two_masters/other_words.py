# REFUSED not-a-verdict
"""Exercise 10. Two masters, five masters.

What comes out for each lock under each fault: "exact", "oversold" or "deadlock"? The table of
`make faults` knows; answer first, then look it up.
"""

from __future__ import annotations

# TODO: fill in all eight.
ANSWERS = {
    ("token", "failover"): "twice",
    ("token-watchdog", "restart"): "twice",
    ("redlock", "pause"): "twice",
    ("redlock", "restart"): "twice",
    ("zookeeper", "pause"): "twice",
    ("redis", "failover"): "fine",
    ("setnx", "eviction"): "fine",
    ("row-lock", "redis-down"): "fine",
}
# END
