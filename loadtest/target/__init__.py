"""Targets: third-party shops under load test, each described by a file of some twenty lines.

    locust -f loadtest/locustfile.py --headless --target my_shop.py --host http://127.0.0.1:8001
    python -m loadtest target my_shop.py --host http://127.0.0.1:8001

docs/your-shop.md shows how to write such a file, and examples/targets/ has some. ours.py has the
target for the shop of this project.
"""

from loadtest.target.answer import Answer, again, error, sold, sold_out
from loadtest.target.asking import ask, sql
from loadtest.target.target import Buyer, Order, Target, TargetError

__all__ = [
    "Answer",
    "Buyer",
    "Order",
    "Target",
    "TargetError",
    "again",
    "ask",
    "error",
    "sold",
    "sold_out",
    "sql",
]
