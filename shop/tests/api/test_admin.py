"""The admin: a sale in one line, and history that nobody edits."""

import re

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from shop.models import Product, PurchaseHistory, Sale
from shop.tests.purchases import buy, open_sale, rolled_back

pytestmark = rolled_back


@pytest.fixture
def clerk() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("clerk"))
    return client


def cells(client: Client, path: str) -> list[list[str]]:
    """The text of a change list's cells, row by row, without the box to choose it."""
    page = client.get(path)
    assert page.status_code == 200
    table = re.findall(r"<tr>(<t[hd].*?)</tr>", page.content.decode(), re.DOTALL)
    found = (re.findall(r"<t[hd] class=\"[^\"]*field-.*?</t[hd]>", row, re.DOTALL) for row in table)
    return [[re.sub(r"<[^>]+>", "", text).strip() for text in row] for row in found if row]


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
    shown = [row[:-1] for row in cells(clerk, "/admin/shop/sale/")[:2]]  # the last is the time
    assert shown == [
        [str(second.pk), "apple", "7", "0", "7", "0", "0"],
        [str(first.pk), "apple", "2", "5", "1", "3", "4"],
    ]


def test_the_list_of_products_shows_the_stock_left_wherever_it_lies(clerk: Client) -> None:
    open_sale(5, lock="buckets")
    assert [row[1] for row in cells(clerk, "/admin/shop/product/?q=apple")] == ["5"]


def test_the_list_of_orders_shows_who_bought_under_which_lock(clerk: Client) -> None:
    sale = open_sale(2)
    order = buy(buyer="<b>ada</b>", lock="redis").body["order"]
    (row,) = cells(clerk, "/admin/shop/purchasehistory/?q=ada")
    escaped = "&lt;b&gt;ada&lt;/b&gt;"
    assert {str(order), escaped, "apple", "redis", "2", f"sale {sale.pk} of apple"} <= set(row)


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


@pytest.mark.parametrize("model", ["sale", "product", "purchasehistory"])
def test_list_asks_as_often_for_25_rows_as_for_two(clerk: Client, model: str) -> None:
    path = f"/admin/shop/{model}/"

    def count_queries(number: int) -> int:
        for index in range(number):
            sale = open_sale(3, product=f"{model}-{Sale.objects.count()}-{index}")
            PurchaseHistory.objects.create(
                sale=sale, product_name="x", purchaser="ada", lock="none", stock_seen=3
            )
        with CaptureQueriesContext(connection) as queries:
            assert clerk.get(path).status_code == 200
        return len(queries)

    few = count_queries(1)
    assert count_queries(24) == few


def test_accounts_are_not_edited_here(clerk: Client) -> None:
    assert {model.__name__ for model in admin.site._registry} == {
        "Product",
        "PurchaseHistory",
        "Sale",
    }
    assert clerk.get("/admin/auth/user/add/").status_code == 404


@pytest.mark.parametrize("password", ["1", "password", "20261123", "clerk1234"])
def test_weak_password_is_refused(clerk: Client, password: str) -> None:
    user = User.objects.get(username="clerk")
    with pytest.raises(ValidationError):
        validate_password(password, user=user)
