"""How django-oscar is installed and started, as its guide says."""

from __future__ import annotations

from examples.targets.django_shop import DjangoShop

SHOP = DjangoShop(
    name="oscar",
    needs=("django-oscar[sorl-thumbnail]~=4.2.1", "psycopg[binary]~=3.3.9", "gunicorn~=27.0"),
    target="oscar_target.py",
    rush=("--buyers", "60", "--stock", "30"),
    page="/catalogue/",
    variants=("repaired",),
    wsgi="oscar_project.wsgi",
    variables=("OSCAR_DATABASE", "OSCAR_DATABASE_HOST"),
)
