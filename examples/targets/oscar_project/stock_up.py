"""Create the product that the load test buys, unless it exists.

python -m oscar_project.stock_up
"""

import sys

import django

django.setup()

from oscar.core.loading import get_model  # noqa: E402

if get_model("partner", "StockRecord").objects.exists():
    sys.exit()
product_class = get_model("catalogue", "ProductClass").objects.create(
    name="thing", track_stock=True, requires_shipping=False
)
product = get_model("catalogue", "Product").objects.create(
    title="Apple", product_class=product_class
)
get_model("partner", "StockRecord").objects.create(
    product=product,
    partner=get_model("partner", "Partner").objects.create(name="warehouse"),
    partner_sku="apple",
    price=10,
    num_in_stock=0,
)
