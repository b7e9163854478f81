"""Sales with their figures, and orders as a record: neither can be edited."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from shop.models import Product, PurchaseHistory, Sale
from shop.sale import reports


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg]  # at run time it has none
    """History is read, not written."""

    def never(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = never


@admin.register(Product)
class ProductAdmin(ReadOnly):
    list_display = ["name", "stock_left", "sale"]
    search_fields = ["name"]

    @admin.display
    def stock_left(self, product: Product) -> int:
        if product.sale_id is None:
            return product.amount
        return reports.report_of(product.sale_id).stock_left


def figure(name: str) -> Callable[[Any], str]:
    """A column with this figure of a sale's report."""

    @admin.display(description=name.replace("_", " "))
    def shown(sale: Sale) -> str:
        return str(getattr(reports.report_of(sale.pk), name))

    shown.__name__ = name
    return shown


@admin.register(Sale)
class SaleAdmin(ReadOnly):
    list_display = [
        *("id", "product", "initial_stock"),
        *map(figure, ("orders", "stock_left", "oversold", "lost_updates")),
        "opened_at",
    ]
    list_filter = ["product"]
    list_per_page = 25  # each is counted by itself
    ordering = ["-id"]


@admin.register(PurchaseHistory)
class PurchaseHistoryAdmin(ReadOnly):
    list_display = [
        *("id", "purchase_time", "purchaser", "product_name"),
        *("lock", "stock_seen", "sale"),
    ]
    list_filter = ["lock", "product_name"]
    search_fields = ["purchaser", "idempotency_key"]
    ordering = ["-id"]
