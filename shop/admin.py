"""Read-only lists of products, sales with their figures, and orders.

An account can change its own password here. Only the role that owns the tables can create accounts
(`manage.py createsuperuser`). The shop's own role cannot, so users and groups are not shown.
"""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.forms import AdminPasswordChangeForm
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.models import Group, User
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from shop.models import Product, PurchaseHistory, Sale
from shop.sale import reports

admin.site.unregister([User, Group])


class OwnPasswordForm(AdminPasswordChangeForm):
    """Writes only the password's column, because the shop's role may not write other columns."""

    def save(self, commit: bool = True) -> User:
        user = super().save(commit=False)
        user.save(update_fields=["password"])
        return user


def change_own_password(request: HttpRequest) -> HttpResponseBase:
    """Serve the form for the user's own password. It writes only the password's column."""
    view = PasswordChangeView.as_view(
        form_class=OwnPasswordForm,
        success_url=reverse("admin:password_change_done"),
        extra_context=admin.site.each_context(request),
    )
    return view(request)


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    """A list that cannot be edited."""

    def _refuse_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _refuse_permission


class ReportAdmin(ReadOnlyAdmin):
    """A list whose rows have a SaleReport as `report`. One query reads all reports."""

    list_per_page = 25

    def get_sale_id(self, row: Any) -> int | None:
        """Return the number of the sale that a row shows, or None."""
        raise NotImplementedError

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        change_list = super().get_changelist_instance(request)
        rows = change_list.result_list
        sale_ids = [sale_id for sale_id in map(self.get_sale_id, rows) if sale_id is not None]
        report_by_sale = {report.sale: report for report in reports.read_reports(sale_ids)}
        for row in rows:  # the page shows these same objects, which the query set has cached
            sale_id = self.get_sale_id(row)
            row.report = None if sale_id is None else report_by_sale.get(sale_id)
        return change_list


@admin.register(Product)
class ProductAdmin(ReportAdmin):
    list_display = ["name", "stock_left", "sale"]
    list_select_related = ["sale__product"]
    search_fields = ["name"]

    def get_sale_id(self, row: Product) -> int | None:
        return row.sale_id

    @admin.display
    def stock_left(self, product: Any) -> int:
        if product.report is None:  # not on sale
            return int(product.amount)
        return int(product.report.stock_left)


def make_figure_column(name: str) -> Callable[[Any], str]:
    """Return a column that shows this figure of a sale's report."""

    @admin.display(description=name.replace("_", " "))
    def column(sale: Any) -> str:
        return str(getattr(sale.report, name))

    column.__name__ = name  # Django derives the CSS class of the cells from it
    return column


@admin.register(Sale)
class SaleAdmin(ReportAdmin):
    list_display = [
        "id",
        "product",
        "initial_stock",
        make_figure_column("orders"),
        make_figure_column("stock_left"),
        make_figure_column("oversold"),
        make_figure_column("lost_updates"),
        "opened_at",
    ]
    list_filter = ["product"]
    list_select_related = ["product"]
    ordering = ["-id"]

    def get_sale_id(self, row: Sale) -> int:
        return row.pk


@admin.register(PurchaseHistory)
class PurchaseHistoryAdmin(ReadOnlyAdmin):
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
    list_select_related = ["sale__product"]
    search_fields = ["purchaser", "idempotency_key"]
    ordering = ["-id"]
