"""A shop as plain as they come, in the test's own database."""

from __future__ import annotations

from django.db import models


class Stock(models.Model):
    """What is there of one article."""

    amount = models.IntegerField()

    class Meta:
        app_label = "warehouse"

    def __str__(self) -> str:
        return str(self.amount)


class Sold(models.Model):
    """One unit that was sold."""

    buyer = models.CharField(max_length=64)

    class Meta:
        app_label = "warehouse"

    def __str__(self) -> str:
        return self.buyer
