"""A shop that the rush is run against: a file of twenty lines says how it is bought from.

    locust -f loadtest/locustfile.py --headless --target my_shop.py --host http://127.0.0.1:8001
    python -m loadtest target my_shop.py --host http://127.0.0.1:8001

docs/your-shop.md shows how to write one; examples/targets/ has some. The shop of this project is
the target in ours.py.
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
