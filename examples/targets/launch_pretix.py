"""How pretix is installed and started: without Celery it does its tasks in the request itself."""

from __future__ import annotations

from examples.targets.django_shop import DjangoShop

SHOP = DjangoShop(
    name="pretix",
    needs=("pretix~=2026.8.0", "gunicorn~=27.0"),
    target="pretix_target.py",
    rush=("--buyers", "12", "--stock", "6"),
    page="/apples/harvest/",
    variants=("unlocked",),
    wsgi="pretix_project.wsgi",
    variables=("PRETIX_DATABASE_NAME", "PRETIX_DATABASE_HOST"),
    fixed=(
        ("PRETIX_DATABASE_BACKEND", "postgresql"),
        ("PRETIX_DATABASE_USER", "postgres"),
        ("PRETIX_PRETIX_URL", "http://127.0.0.1"),
        ("PRETIX_PRETIX_ECB_RATES", "false"),  # asks nobody on the internet
        ("DATA_DIR", "data"),
    ),
)
