"""Exercise 10. Two masters, five masters.

Which verdict does each lock get under the fault next to it: "exact", "oversold" or "deadlock"? The
table of `make faults` has the verdicts (docs/faults.md). Answer first, then look them up.
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
