"""The simplest shop: its tables, two ways to buy, and functions for interleave().

interleave() calls reset_to_one_unit() before each order of steps (`before=`), and check_sold_once()
after it (`check=`).
"""

from django.db import models, transaction

from testing import Run


class Stock(models.Model):
    """The stock of one product."""

    amount = models.IntegerField()

    class Meta:
        app_label = "warehouse"

    def __str__(self) -> str:
        return str(self.amount)


class Sold(models.Model):
    """A unit that was sold."""

    buyer = models.CharField(max_length=64)

    class Meta:
        app_label = "warehouse"

    def __str__(self) -> str:
        return self.buyer


def reset_to_one_unit() -> None:
    """Delete the records of all sold units, and put one unit in stock."""
    Sold.objects.all().delete()
    Stock.objects.all().delete()
    Stock.objects.create(pk=1, amount=1)


def buy_plainly() -> int:
    """Buy a unit; return an HTTP status.

    FLAW: another buyer may buy between the read and the write.
    """
    stock = Stock.objects.get(pk=1)
    if stock.amount < 1:
        return 409
    stock.amount -= 1
    stock.save()
    Sold.objects.create(buyer="somebody")
    return 200


def buy_with_a_condition() -> int:
    """Buy a unit. One UPDATE checks the stock and decrements it. Return an HTTP status."""
    with transaction.atomic():
        if not Stock.objects.filter(pk=1, amount__gte=1).update(amount=models.F("amount") - 1):
            return 409
        Sold.objects.create(buyer="somebody")
    return 200


def check_sold_once(run: Run) -> None:
    """Raise AssertionError unless exactly one unit was sold."""
    order_count = Sold.objects.count()
    assert order_count == 1, f"{order_count} orders for 1 unit"
