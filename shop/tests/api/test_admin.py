"""Django's admin: it requires a login and shows products, sales and orders, all read-only."""

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
    """A client that is logged in to the admin."""
    client = Client()
    client.force_login(User.objects.create_superuser("clerk"))
    return client


def read_cells(client: Client, path: str) -> list[list[str]]:
    """Return the rows of a list in the admin, each as the texts of its cells.

    Headings and checkboxes are left out.
    """
    page = client.get(path)
    assert page.status_code == 200
    rows = []
    for row in re.findall(r"<tr>(<t[hd].*?)</tr>", page.content.decode(), re.DOTALL):
        # A cell that shows a field of the model has a CSS class field-...; a checkbox has none.
        cells = re.findall(r"<t[hd] class=\"[^\"]*field-.*?</t[hd]>", row, re.DOTALL)
        if cells:
            rows.append([re.sub(r"<[^>]+>", "", cell).strip() for cell in cells])
    return rows


def test_sale_list_shows_oversold_units_and_lost_updates(clerk: Client) -> None:
    """The list shows how many units of a sale were oversold, and how many updates were lost.

    The first sale has 5 orders for 2 units, so 3 are oversold. One of the 2 units is left, so only
    one of the 5 orders has lowered the stock, and 4 updates were lost. The second sale has no
    orders.
    """
    first_sale = open_sale(2)
    PurchaseHistory.objects.bulk_create(
        PurchaseHistory(
            sale=first_sale, product_name="apple", purchaser=f"b{number}", lock="none", stock_seen=2
        )
        for number in range(5)
    )
    Product.objects.filter(name="apple").update(amount=1)
    second_sale = open_sale(7)
    rows = read_cells(clerk, "/admin/shop/sale/")
    newest_rows = rows[:2]  # an older row may follow: the migrations open a sale
    assert [row[:-1] for row in newest_rows] == [  # without the last cell, the time
        # id, product, initial stock, orders, stock left, oversold, lost updates
        [str(second_sale.pk), "apple", "7", "0", "7", "0", "0"],
        [str(first_sale.pk), "apple", "2", "5", "1", "3", "4"],
    ]


def test_product_list_shows_stock_in_buckets(clerk: Client) -> None:
    """The strategy `buckets` splits the stock over several rows. The list shows the sum."""
    open_sale(5, lock="buckets")
    (row,) = read_cells(clerk, "/admin/shop/product/?q=apple")
    stock = row[1]
    assert stock == "5"


def test_order_list_shows_buyer_and_lock(clerk: Client) -> None:
    """The buyer's name is escaped, so that it cannot add HTML to the page."""
    sale = open_sale(2)
    order = buy(buyer="<b>ada</b>", lock="redis").body["order"]
    (row,) = read_cells(clerk, "/admin/shop/purchasehistory/?q=ada")
    buyer = "&lt;b&gt;ada&lt;/b&gt;"
    stock_seen = "2"
    sale_link = f"sale {sale.pk} of apple"
    assert {str(order), buyer, "apple", "redis", stock_seen, sale_link} <= set(row)


@pytest.mark.parametrize("model", ["sale", "product", "purchasehistory"])
def test_rows_are_read_only(clerk: Client, model: str) -> None:
    """The admin shows a row to a superuser, but refuses to change, delete or add rows."""
    sale = open_sale(2)
    order = buy().body["order"]
    ids = {"sale": sale.pk, "product": sale.product_id, "purchasehistory": order}
    path = f"/admin/shop/{model}"
    row_path = f"{path}/{ids[model]}"
    assert clerk.get(f"{row_path}/change/").status_code == 200
    assert clerk.post(f"{row_path}/change/", {}).status_code == 403
    confirmation = {"post": "yes"}
    assert clerk.post(f"{row_path}/delete/", confirmation).status_code == 403
    assert clerk.post(f"{path}/add/", {}).status_code == 403


def test_admin_requires_a_login() -> None:
    answer = Client().get("/admin/shop/sale/")
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("model", ["sale", "product", "purchasehistory"])
def test_lists_need_no_query_per_row(clerk: Client, model: str) -> None:
    """The admin sends as many queries for a list of 25 rows as for a list of one row."""
    path = f"/admin/shop/{model}/"

    def add_sales(count: int) -> None:
        for index in range(count):
            # Each sale has a new product, so that the lists of sales and of products both grow.
            sale = open_sale(3, product=f"{model}-{Sale.objects.count()}-{index}")
            PurchaseHistory.objects.create(
                sale=sale, product_name="x", purchaser="ada", lock="none", stock_seen=3
            )

    def count_queries() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert clerk.get(path).status_code == 200
        return len(queries)

    add_sales(1)
    queries_for_one_row = count_queries()
    add_sales(24)  # 25 rows: one page of products or sales
    assert count_queries() == queries_for_one_row


def test_accounts_are_not_edited_in_the_admin(clerk: Client) -> None:
    """The admin has no pages for users and groups."""
    assert {model.__name__ for model in admin.site._registry} == {
        "Product",
        "PurchaseHistory",
        "Sale",
    }
    assert clerk.get("/admin/auth/user/add/").status_code == 404


@pytest.mark.parametrize(
    "password",
    ["1", "password", "20261123", "clerk1234"],
    ids=["short", "common", "digits", "user name"],
)
def test_weak_password_is_refused(clerk: Client, password: str) -> None:
    user = User.objects.get(username="clerk")
    with pytest.raises(ValidationError):
        validate_password(password, user=user)
