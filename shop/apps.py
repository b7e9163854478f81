from __future__ import annotations

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class ShopConfig(AppConfig):
    name = "shop"
    verbose_name = "Shop"

    def ready(self) -> None:
        from shop import checks, checks_production, logs, strategies  # noqa: F401  (registers)
        from shop.demo import hooks, mine

        logs.install()
        hooks.install()
        mine.install()


class ShopAdminConfig(AdminConfig):
    """Django's admin, with the shop's login."""

    default_site = "shop.admin_login.ShopAdminSite"
