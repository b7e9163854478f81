from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"
    verbose_name = "Shop"

    def ready(self) -> None:
        from shop import checks, demo, logs  # noqa: F401  (registers them)

        logs.install()
        demo.install()
