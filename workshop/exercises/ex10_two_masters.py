"""Exercise 10. Two masters, five masters.

What comes out for each lock under each fault: "exact", "oversold" or "deadlock"? The table of
`make faults` (docs/faults.md) knows; answer first, then look it up.
"""

# TODO: fill in all eight.
ANSWERS = {
    ("token", "failover"): "",
    ("token-watchdog", "restart"): "",
    ("redlock", "pause"): "",
    ("redlock", "restart"): "",
    ("zookeeper", "pause"): "",
    ("redis", "failover"): "",
    ("setnx", "eviction"): "",
    ("row-lock", "redis-down"): "",
}
# END
