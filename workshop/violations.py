"""How many of the twenty sequences of two buyers' moves sell a unit twice: JSON, lock -> number.

    python -m workshop.violations LOCK...

In a process of its own, with the environment of a node.
"""

from __future__ import annotations

import json
import sys


def main(locks: list[str]) -> dict[str, int]:
    """Lock -> how many schedules violate it."""
    import django

    django.setup()
    from shop.demo.schedules import Scheduler
    from shop.sale.stock import restock

    restock(product="apple", amount=1)
    found = {}
    for lock in locks:
        with Scheduler(lock) as scheduler:
            found[lock] = sum(run.violates for run in scheduler.every_run(1))
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
