"""How the load test buys from django-oscar: as guests who have filled a basket before the rush."""

import re
from typing import Any
from urllib.request import urlopen

from loadtest.target import Answer, Buyer, Order, Target, TargetError, error, sold, sold_out, sql
from servers.embedded import VAR

CSRF_FIELD = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')


class OscarShop(Target):
    """A shop with django-oscar, as the load test sees it."""

    name = "oscar"
    prepare_s = 240.0  # each buyer loads six pages before the rush

    def open(self, stock: int) -> None:
        """Set the stock of the product, with no unit allocated to an order."""
        self.sql("UPDATE partner_stockrecord SET num_in_stock = %s, num_allocated = 0", stock)
        # Load the product's page once before the rush. Oscar counts the views of a product, and two
        # concurrent first views would both insert the counter, so one of them would fail.
        (product,) = self.sql("SELECT product_id FROM partner_stockrecord")[0]
        with urlopen(f"{self.host}/catalogue/apple_{product}/", timeout=30):
            pass

    def prepare(self, buyer: Buyer) -> None:
        """Fill the basket of a new guest, and load the pages up to the preview of the order.

        A guest is a buyer without an account.
        """
        buyer.client.cookiejar.clear()  # Oscar recognizes a guest by the cookies
        (product,) = self.sql("SELECT product_id FROM partner_stockrecord")[0]
        page = buyer.client.get(f"/catalogue/apple_{product}/", name="product")
        form = {"csrfmiddlewaretoken": find_csrf_token(page), "quantity": "1"}
        page = buyer.client.post(f"/basket/add/{product}/", data=form, name="add to basket")
        page = buyer.client.get("/checkout/", name="checkout")
        form = {
            "csrfmiddlewaretoken": find_csrf_token(page),
            "options": "anonymous",
            "username": f"{buyer.name}@example.com",  # orders() reads the buyer's name from it
        }
        buyer.client.post("/checkout/", data=form, name="guest")
        buyer.client.get("/checkout/shipping-method/", name="shipping")
        page = buyer.client.get("/checkout/preview/", name="preview")
        buyer.kept["form"] = {
            "csrfmiddlewaretoken": find_csrf_token(page),
            "action": "place_order",
        }

    def buy(self, buyer: Buyer) -> Any:
        """Submit the form that prepare() stored, which places the order. Return the response."""
        return buyer.client.post(
            "/checkout/preview/", data=buyer.kept["form"], name="place order", allow_redirects=False
        )

    def read(self, response: Any) -> Answer:
        """Return the shop's answer: sold, sold out or an error.

        Oscar redirects to its thank-you page after an order, and to the basket if the product is
        sold out. With the patch that this example applies to Oscar (--repaired), Oscar may
        show the preview page again, with the message of oscar_project/partner/models.py.
        """
        redirect_url = str((response.headers or {}).get("Location", ""))
        if redirect_url.endswith("/checkout/thank-you/"):
            return sold()
        if redirect_url.endswith("/basket/"):
            return sold_out()
        if response.status_code == 200 and "no unit is left" in response.text:
            return sold_out()
        if redirect_url:
            return error(f"unexpected redirect ({response.status_code}) to {redirect_url}")
        return error(f"unexpected page with status {response.status_code}")

    def orders(self) -> list[Order]:
        rows = self.sql("SELECT number, guest_email FROM order_order ORDER BY id")
        return [Order(number, email.partition("@")[0]) for number, email in rows]

    def stock(self) -> int:
        """Return the number of units that Oscar would still sell.

        An order only allocates a unit. Oscar decrements `num_in_stock` when it ships the order.
        """
        ((unallocated,),) = self.sql(
            "SELECT num_in_stock - coalesce(num_allocated, 0) FROM partner_stockrecord"
        )
        return int(unallocated)

    def sql(self, query: str, *values: Any) -> Any:
        # The file has the URL of the database. examples.targets writes it when it starts the shop.
        return sql((VAR / "targets" / "oscar" / "dsn").read_text(), query, *values)


def find_csrf_token(page: Any) -> str:
    """Return the CSRF token of a page. Raises TargetError if the page has none."""
    match = CSRF_FIELD.search(page.text or "")
    if match is None:
        raise TargetError(f"{page.url} has no form with a CSRF token")
    return match[1]
