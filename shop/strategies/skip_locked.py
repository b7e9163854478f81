"""One row for each unit: SELECT ... FOR UPDATE SKIP LOCKED gives every buyer another row.

Job queues in a database work like this. No buyer waits while there is a unit whose row is not
locked. But a unit whose row is locked is not sold yet:

    A and B have locked the last two units, C finds no other row
    A commits, B rolls back, and one unit is left

So C must not be answered `sold_out` yet. It repeats the query without SKIP LOCKED, and waits for A
and B. The result is final: either the unit that B did not buy, or no row, because all units are
sold.
"""

from dataclasses import replace

from django.db import connection, transaction

from shop.errors import BadInput, SaleClosed, WrongStrategy
from shop.models import Product, Unit
from shop.sale.purchase import Attempt, Receipt, Stock, read_stock, sell_one
from shop.sale.strategy import Strategy

#: Limit on the units of a sale: opening a sale inserts a row for each unit, and closing it deletes
#: the rows of the unsold units.
MAX_UNITS = 100_000
#: Rows per INSERT on databases without generate_series().
UNITS_PER_INSERT = 1_000
#: Written in SQL: here buyers rarely wait, so the shop's processor time limits the sales per
#: second, and the ORM's queries would take half of it. The columns are the fields of Stock.
#: `amount` is the unit's number: the highest is sold first, so it is close to the number of units
#: left.
LOCK_FREE_UNIT = """
    SELECT product.id, product.sale_id, unit.number, 0, unit.number
    FROM product CROSS JOIN LATERAL (
        SELECT number FROM shop_unit WHERE sale_id = product.sale_id
        ORDER BY number DESC LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS unit
    WHERE product.name = %s
"""
#: The query for MySQL, and for MariaDB and SQLite, which have no LATERAL. FOR UPDATE SKIP LOCKED is
#: appended if the database has it.
FREE_UNIT_OF_SALE = """
    SELECT sale_id, number FROM shop_unit
    WHERE sale_id = (SELECT sale_id FROM product WHERE name = %s)
    ORDER BY number DESC LIMIT 1
"""
DELETE_UNIT = "DELETE FROM shop_unit WHERE sale_id = %s AND number = %s"


def lock_a_unit(attempt: Attempt) -> Stock:
    """Lock a unit, and return the stock with the unit's number as `row_number`.

    If other buyers have locked all units, this waits for them. If no unit is left, the stock's
    `amount` is 0. Raises UnknownProduct, WrongStrategy or SaleClosed.
    """
    if connection.vendor != "postgresql":
        return lock_a_unit_in_two_statements(attempt)
    with connection.cursor() as cursor:
        cursor.execute(LOCK_FREE_UNIT, [attempt.product])
        row = cursor.fetchone()
    if row is None:
        return wait_for_a_unit(attempt)
    return Stock(*row)


def lock_a_unit_in_two_statements(attempt: Attempt) -> Stock:
    """Lock a unit as lock_a_unit() does, on a database other than PostgreSQL.

    If other buyers have locked all units, wait for one of these units.
    """
    query = FREE_UNIT_OF_SALE
    if connection.features.has_select_for_update_skip_locked:
        query += " FOR UPDATE SKIP LOCKED"
    with connection.cursor() as cursor:
        cursor.execute(query, [attempt.product])
        row = cursor.fetchone()
        if row is None:
            return wait_for_a_unit(attempt)
        sale_id, number = row
        cursor.execute("SELECT id FROM product WHERE name = %s", [attempt.product])
        (product_id,) = cursor.fetchone()
    # The highest number is sold first, so it is close to the number of units left.
    return Stock(product_id, sale_id, amount=number, row_number=number)


def wait_for_a_unit(attempt: Attempt) -> Stock:
    """Wait for the buyers with locks on the last units, then return the stock.

    If a unit is left, this buyer has locked it. Otherwise the stock's `amount` is 0. Raises
    UnknownProduct, WrongStrategy or SaleClosed.
    """
    stock = read_stock(attempt)
    if stock.amount:
        # fill_units() leaves no units in the product's row, so the sale was opened for another
        # strategy.
        raise WrongStrategy
    unsold_units = Unit.objects.filter(sale_id=stock.sale_id).order_by("-number")
    unit = unsold_units.select_for_update().first()
    if unit is not None:
        return replace(stock, amount=unit.number, row_number=unit.number)
    if not Product.objects.filter(pk=stock.product_id, sale_id=stock.sale_id).exists():
        raise SaleClosed  # the sale was closed while this buyer waited
    return stock


def delete_unit(attempt: Attempt, stock: Stock) -> None:
    """Delete the row of the locked unit."""
    with connection.cursor() as cursor:
        cursor.execute(DELETE_UNIT, [stock.sale_id, stock.row_number])


def buy(attempt: Attempt) -> Receipt:
    with transaction.atomic(durable=True):
        return sell_one(attempt, read=lock_a_unit, write=delete_unit)


def fill_units(stock: Stock) -> None:
    """Insert a row for each unit of a new sale. Raises BadInput for more than MAX_UNITS."""
    if stock.amount > MAX_UNITS:
        problem = (
            f"a stock of {stock.amount} is too large for this strategy, which stores one row per "
            "unit"
        )
        raise BadInput(problem, allowed=[f"{MAX_UNITS} units at most"])
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO shop_unit (sale_id, number) SELECT %s, generate_series(1, %s)",
                [stock.sale_id, stock.amount],
            )
    else:
        units = (
            Unit(sale_id=stock.sale_id, number=number) for number in range(1, stock.amount + 1)
        )
        Unit.objects.bulk_create(units, batch_size=UNITS_PER_INSERT)
    # The rows are the stock now. Another strategy must not sell the same units from `amount`.
    Product.objects.filter(pk=stock.product_id).update(amount=0)


def remove_unsold_units(sale_id: int) -> int:
    """Delete the rows of a sale's unsold units, and return the number of these units."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM shop_unit WHERE sale_id = %s", [sale_id])
        return int(cursor.rowcount)


STRATEGY = Strategy(
    rank=260,
    title="SKIP LOCKED",
    summary="One row per unit: a buyer takes a free row, and waits only if all are locked.",
    highlights=("FOR UPDATE SKIP LOCKED", "wait_for_a_unit(attempt)"),
    buy=buy,
    holds_row=True,
    backend="postgresql",
    sound=True,
    fill_own_rows=fill_units,
    close_sale=remove_unsold_units,
)
