"""Sales with their figures, and orders as a record: neither can be edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from shop.models import Product, PurchaseHistory, Sale
from shop.sale import reports

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


class ReadOnly(ModelAdmin):
    """History is read, not written."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Product)
class ProductAdmin(ReadOnly):
    list_display = ["name", "stock_left", "sale"]
    search_fields = ["name"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Product]:
        return reports.counted_products()

    @admin.display(ordering="stock_left")
    def stock_left(self, product: Any) -> int:
        return int(product.stock_left)


@admin.register(Sale)
class SaleAdmin(ReadOnly):
    list_display = [
        "id",
        "product",
        "initial_stock",
        "orders",
        "stock_left",
        "oversold",
        "lost_updates",
        "opened_at",
    ]
    list_filter = ["product"]
    ordering = ["-id"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Sale]:
        return reports.counted_sales()

    @admin.display(ordering="units_sold")
    def orders(self, sale: Sale) -> int:
        return reports.report_of(sale).orders

    @admin.display(ordering="stock_left")
    def stock_left(self, sale: Sale) -> int:
        return reports.report_of(sale).stock_left

    @admin.display
    def oversold(self, sale: Sale) -> int:
        return reports.report_of(sale).oversold

    @admin.display
    def lost_updates(self, sale: Sale) -> int:
        return reports.report_of(sale).lost_updates


@admin.register(PurchaseHistory)
class PurchaseHistoryAdmin(ReadOnly):
    list_display = [
        "id",
        "purchase_time",
        "purchaser",
        "product_name",
        "lock",
        "stock_seen",
        "sale",
    ]
    list_filter = ["lock", "product_name"]
    search_fields = ["purchaser", "idempotency_key"]
    ordering = ["-id"]
