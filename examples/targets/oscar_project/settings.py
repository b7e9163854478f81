"""The settings that Oscar's own guide requires. Only VARIANT=repaired changes how Oscar sells."""

import os
from pathlib import Path

import oscar
from oscar import INSTALLED_APPS as OSCAR
from oscar.defaults import *

INSTALLED_APPS = OSCAR + ["sorl.thumbnail"]
if os.environ["VARIANT"] == "repaired":
    partner_index = INSTALLED_APPS.index("oscar.apps.partner.apps.PartnerConfig")
    INSTALLED_APPS[partner_index] = "oscar_project.partner.PartnerConfig"
    MIGRATION_MODULES = {"partner": "oscar.apps.partner.migrations"}  # the tables are the same
SECRET_KEY = "only for the rush on this machine"
ALLOWED_HOSTS = ["127.0.0.1"]
SITE_ID = 1
ROOT_URLCONF = "oscar_project.urls"
# The folder of Oscar's placeholder, because the product has no picture.
MEDIA_ROOT = Path(oscar.__file__).parent / "static" / "oscar" / "img"
STATIC_URL = "/static/"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"

#: Guests may buy, as in Oscar's sandbox. The default is False.
OSCAR_ALLOW_ANON_CHECKOUT = True

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["OSCAR_DATABASE"],
        "HOST": os.environ["OSCAR_DATABASE_HOST"],
        "USER": "postgres",
        "ATOMIC_REQUESTS": True,  # as Oscar's guide recommends
    }
}
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
AUTHENTICATION_BACKENDS = [
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
    "django.contrib.flatpages.middleware.FlatpageFallbackMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.debug",
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.template.context_processors.i18n",
                "django.contrib.messages.context_processors.messages",
                "oscar.apps.search.context_processors.search_form",
                "oscar.apps.checkout.context_processors.checkout",
                "oscar.apps.communication.notifications.context_processors.notifications",
                "oscar.core.context_processors.metadata",
            ],
        },
    }
]
