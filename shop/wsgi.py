"""The shop as a WSGI application: gunicorn shop.wsgi"""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

application = get_wsgi_application()

# These imports need the settings, which are read above.
from shop.api.request import ShopWsgiRequest  # noqa: E402
from shop.checks import require_allowed_lock  # noqa: E402

application.request_class = ShopWsgiRequest

require_allowed_lock()
