"""The shop as a WSGI application: gunicorn shop.wsgi"""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

application = get_wsgi_application()

# These imports need the settings, which are read above.
from shop.api.request import ShopWsgiRequest  # noqa: E402
from shop.checks import refuse_to_start  # noqa: E402

application.request_class = ShopWsgiRequest

refuse_to_start()  # raises an exception only if SHOP_LOCK is not allowed
