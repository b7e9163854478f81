"""The admin: what a sale came to in one line, and history that nobody edits."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from shop.models import Product, PurchaseHistory
from shop.tests.till import buy, open_sale, rolled_back

pytestmark = rolled_back


@pytest.fixture
def clerk() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("clerk"))
    return client


def rows(client: Client, path: str) -> list[dict[str, str]]:
    """A change list as it is rendered: column -> text, row by row."""
    page = client.get(path)
    assert page.status_code == 200
    table = re.findall(r"<tr>(<t[hd].*?)</tr>", page.content.decode(), re.DOTALL)
    cells = (
        re.findall(r'<t[hd] class="[^"]*field-(\w+)[^"]*">(.*?)</t[hd]>', row, re.S)
        for row in table
    )
    return [
        {name: re.sub(r"<[^>]+>", "", text).strip() for name, text in row} for row in cells if row
    ]


def test_what_a_sale_came_to_is_left_of_when_it_was_opened(clerk: Client) -> None:
    """At 1280 pixels the last column is cut off beside the filter."""
    open_sale(2)
    columns = list(rows(clerk, "/admin/shop/sale/")[0])
    assert columns.index("lost_updates") < columns.index("opened_at")


def test_the_list_of_sales_shows_stock_orders_oversold_and_lost_updates(clerk: Client) -> None:
    first = open_sale(2)
    PurchaseHistory.objects.bulk_create(
        PurchaseHistory(
            sale=first, product_name="apple", purchaser=f"b{number}", lock="none", stock_seen=2
        )
        for number in range(5)
    )
    Product.objects.filter(name="apple").update(amount=1)
    second = open_sale(7)
    shown = rows(clerk, "/admin/shop/sale/")[:2]
    for row in shown:
        assert row.pop("opened_at")
    assert shown == [
        {
            "id": str(second.pk),
            "product": "apple",
            "initial_stock": "7",
            "orders": "0",
            "stock_left": "7",
            "oversold": "0",
            "lost_updates": "0",
        },
        {
            "id": str(first.pk),
            "product": "apple",
            "initial_stock": "2",
            "orders": "5",
            "stock_left": "1",
            "oversold": "3",
            "lost_updates": "4",
        },
    ]


def test_the_list_of_orders_shows_who_bought_under_which_lock(clerk: Client) -> None:
    sale = open_sale(2)
    order = buy(buyer="<b>ada</b>", lock="redis").body["order"]
    (row,) = rows(clerk, "/admin/shop/purchasehistory/?q=ada")
    assert row.pop("purchase_time")
    assert row == {
        "id": str(order),
        "purchaser": "&lt;b&gt;ada&lt;/b&gt;",
        "product_name": "apple",
        "lock": "redis",
        "stock_seen": "2",
        "sale": f"sale {sale.pk} of apple",
    }


@pytest.mark.parametrize("model", ["sale", "product", "purchasehistory"])
def test_history_is_shown_and_never_added_changed_or_deleted(clerk: Client, model: str) -> None:
    sale = open_sale(2)
    number = {
        "sale": sale.pk,
        "product": sale.product_id,
        "purchasehistory": buy().body["order"],
    }[model]
    path = f"/admin/shop/{model}"
    assert clerk.get(f"{path}/{number}/change/").status_code == 200
    assert clerk.post(f"{path}/{number}/change/", {}).status_code == 403
    assert clerk.post(f"{path}/{number}/delete/", {"post": "yes"}).status_code == 403
    assert clerk.post(f"{path}/add/", {}).status_code == 403


def test_the_admin_is_closed_without_a_login() -> None:
    answer = Client().get("/admin/shop/sale/")
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/admin/login/")
