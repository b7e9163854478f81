"""A Django shop in one file, on MySQL or MariaDB, that oversells at REPEATABLE READ.

Each buyer locks a row, so that only one buyer at a time continues, and then reads the stock. That
is correct at READ COMMITTED, which Django sets. At REPEATABLE READ, the default of the servers, a
plain SELECT shows the database as the first query of the transaction saw it: before the buyer
waited for the row. The repair is one line: read the stock with SELECT ... FOR UPDATE, which sees
the current row.

    SHOP_DATABASE    mysql://user@host/database; ?unix_socket=/path if the server has no TCP port
    ISOLATION_LEVEL  "repeatable read" if it is not set

python mysql_shop.py creates its tables, and its product without stock.
"""

import os
from urllib.parse import parse_qs, unquote, urlsplit

import django
import pymysql
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

pymysql.install_as_MySQLdb()
address = urlsplit(os.environ["SHOP_DATABASE"])
settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only for the rush on this machine",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.mysql",
            "NAME": address.path.lstrip("/"),
            "USER": unquote(address.username or ""),
            "PASSWORD": unquote(address.password or ""),
            # As a host, Django also takes the path of the server's socket.
            "HOST": parse_qs(address.query).get("unix_socket", [address.hostname])[0],
            "PORT": address.port or "",
            "CONN_MAX_AGE": None,
            "OPTIONS": {"isolation_level": os.environ.get("ISOLATION_LEVEL", "repeatable read")},
        }
    },
)
django.setup()


class Counter(models.Model):
    """The row that a buyer locks."""

    class Meta:
        app_label = "shop"


class Product(models.Model):
    stock = models.IntegerField()

    class Meta:
        app_label = "shop"


class Order(models.Model):
    buyer = models.CharField(max_length=255)

    class Meta:
        app_label = "shop"


def show(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"stock": Product.objects.get(pk=1).stock})


@transaction.atomic
def buy(request: HttpRequest) -> JsonResponse:
    """Sell a unit. FLAW: the stock is read from a snapshot that is older than the row lock."""
    buyer = request.GET["buyer"]
    if Order.objects.filter(buyer=buyer).exists():  # this first query takes the snapshot
        return JsonResponse({"error": "one unit for each customer"}, status=422)
    Counter.objects.select_for_update().get(pk=1)  # only one buyer at a time continues
    product = Product.objects.get(pk=1)
    if product.stock < 1:
        return JsonResponse({"error": "sold out"}, status=409)
    product.stock -= 1
    product.save()
    order = Order.objects.create(buyer=buyer)
    return JsonResponse({"order": order.pk}, status=201)


urlpatterns = [path("", show), path("buy", buy)]
application = get_wsgi_application()

if __name__ == "__main__":
    with connection.schema_editor() as editor:
        for model in (Counter, Product, Order):
            editor.create_model(model)
    Counter.objects.create(pk=1)
    Product.objects.create(pk=1, stock=0)
