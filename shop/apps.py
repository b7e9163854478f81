from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self) -> None:
        from shop import checks, strategies  # noqa: F401  (the import registers both)
        from shop.ops import health
        from shop.reserve import promises, settlement_report

        if promises.can_have_promises():
            health.register_backlog(settlement_report.read_backlog)
