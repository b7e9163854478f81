"""The models of the examples.

Copy the two fields and the constraint whose comments begin with `added` to your own models, without
`app_label`. A usual shop has the other fields already.
"""

from django.db import models
from django.db.models import Q


class Product(models.Model):
    """A product of the shop, and its stock."""

    name = models.CharField(max_length=64, unique=True)
    amount = models.IntegerField()
    fence = models.BigIntegerField(default=0)  # added, for a lock: the highest claimed fence

    class Meta:
        app_label = "examples"
        constraints = [
            # added: the last line of defence for a relative decrement (`amount - 1`)
            models.CheckConstraint(condition=Q(amount__gte=0), name="amount_not_negative"),
        ]

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """One unit, sold to one buyer."""

    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    buyer = models.CharField(max_length=255)
    # added: the request's Idempotency-Key; it may be null, because earlier orders have none
    key = models.CharField(max_length=255, unique=True, null=True)  # noqa: DJ001

    class Meta:
        app_label = "examples"

    def __str__(self) -> str:
        return f"{self.buyer} ({self.key})"
