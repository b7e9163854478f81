"""The two tables of article A1 (product and purchase_history), and those of sales and their units.

The tables of units are for `buckets` and `skip-locked`, which sell from their own rows.
"""

from django.db import models
from django.db.models import Q
from django.utils import timezone

#: The largest id that PostgreSQL can store.
MAX_ID = 2**63 - 1


class Product(models.Model):
    """A product of the shop, and its remaining stock.

    CHECK (amount >= 0) does not prevent overselling: two buyers who read the same stock of 1 both
    write 0, which is not negative.
    """

    name = models.SlugField(max_length=64, unique=True)
    amount = models.IntegerField(default=0)
    #: The open sale. Null while the product is not on sale.
    sale = models.ForeignKey(
        "Sale", on_delete=models.PROTECT, null=True, editable=False, related_name="+"
    )
    #: The highest fence that a holder of the lock has claimed. Holders with lower ones are refused.
    fence = models.BigIntegerField(default=0, editable=False)
    #: Counts the writes of the strategy `version`.
    version = models.BigIntegerField(default=0, editable=False)

    class Meta:
        db_table = "product"
        constraints = [
            models.CheckConstraint(condition=Q(amount__gte=0), name="product_amount_not_negative"),
        ]

    def __str__(self) -> str:
        return self.name


class Sale(models.Model):
    """A sale of one product, with its initial stock."""

    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="sales")
    initial_stock = models.IntegerField()
    opened_at = models.DateTimeField(default=timezone.now)
    closed_at = models.DateTimeField(null=True, blank=True)
    #: Units left when the sale was closed, minus the promised units whose orders were written
    #: since. Null while the sale is open.
    final_stock = models.IntegerField(null=True, blank=True)
    #: The key of the request that opened the sale. A repeated request gets this sale again.
    idempotency_key = models.CharField(  # noqa: DJ001
        max_length=255, unique=True, null=True, editable=False
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(initial_stock__gte=0), name="sale_initial_stock_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(closed_at__isnull=True, final_stock__isnull=True)
                | Q(closed_at__isnull=False, final_stock__isnull=False),
                name="sale_closed_with_its_final_stock",
            ),
            models.CheckConstraint(
                condition=Q(final_stock__gte=0), name="sale_final_stock_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return f"sale {self.pk} of {self.product.name}"


class Bucket(models.Model):
    """A part of the stock of an open sale, for the strategy `buckets`."""

    pk = models.CompositePrimaryKey("sale_id", "number")
    sale = models.ForeignKey(Sale, on_delete=models.PROTECT, related_name="+", db_index=False)
    number = models.SmallIntegerField()
    amount = models.IntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(amount__gte=0), name="bucket_amount_not_negative"),
        ]

    def __str__(self) -> str:
        return f"bucket {self.number} of sale {self.sale_id}: {self.amount}"


class Unit(models.Model):
    """An unsold unit of an open sale, for the strategy `skip-locked`.

    The buyer deletes the row. Units are sold from the highest number down to 1.
    """

    pk = models.CompositePrimaryKey("sale_id", "number")
    #: No constraint, because the database would check every row of the INSERT that opens a sale.
    sale = models.ForeignKey(
        Sale, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    number = models.IntegerField()

    def __str__(self) -> str:
        return f"unit {self.number} of sale {self.sale_id}"


class PurchaseHistory(models.Model):
    """An order: one unit, bought by one buyer."""

    sale = models.ForeignKey(Sale, on_delete=models.PROTECT, related_name="orders")
    product_name = models.CharField(max_length=255)
    purchaser = models.CharField(max_length=255)
    purchase_time = models.DateTimeField(default=timezone.now)
    amount = models.IntegerField(default=1)
    #: The key of the request that bought. A repeated request gets this order again.
    idempotency_key = models.CharField(max_length=255, unique=True, null=True)  # noqa: DJ001
    #: A digest of that request. The same key must not be used for a different request.
    fingerprint = models.CharField(max_length=64)
    #: The name of the strategy that sold the unit.
    lock = models.CharField(max_length=64)
    #: Units left when the buyer checked the stock, including the sold unit.
    stock_seen = models.IntegerField()
    #: The fence of the lease under which the unit was sold. Null if the strategy has none.
    fence = models.BigIntegerField(null=True)

    class Meta:
        db_table = "purchase_history"
        verbose_name_plural = "purchase history"
        constraints = [
            models.CheckConstraint(condition=Q(amount__gt=0), name="order_amount_positive"),
        ]

    def __str__(self) -> str:
        return f"order {self.pk}: {self.product_name} for {self.purchaser}"
