"""The shop as a WSGI application: gunicorn shop.wsgi"""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

application = get_wsgi_application()

from shop.checks import refuse_to_start  # noqa: E402  (after the settings are read)

refuse_to_start()  # raises an exception only if SHOP_LOCK is not allowed
