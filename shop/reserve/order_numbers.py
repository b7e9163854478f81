"""Numbers for orders that are written later, drawn from PostgreSQL's own sequence.

A process draws a block at a time, so that a purchase needs no query. Numbers that a process still
has at its end belong to no order: the sequence has such gaps after every rollback too.
"""

from __future__ import annotations

import threading

from django.db import connection

from shop.models import PurchaseHistory

#: Numbers that one query draws.
BLOCK = 200

_free: list[int] = []
_drawing = threading.Lock()


def take() -> int:
    """A number that no other order has or will have. Raises DatabaseError."""
    with _drawing:
        if not _free:
            _free.extend(reversed(_draw(BLOCK)))
        return _free.pop()


def put_back(number: int) -> None:
    """Let another order have a number that nobody was told of."""
    with _drawing:
        _free.append(number)


def _draw(count: int) -> list[int]:
    sequence = f"{PurchaseHistory._meta.db_table}_id_seq"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(%s::regclass) FROM generate_series(1, %s)", [sequence, count]
        )
        return [number for (number,) in cursor.fetchall()]
