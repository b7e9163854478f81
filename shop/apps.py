from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self) -> None:
        from shop import checks, strategies  # noqa: F401  (the import registers both)
        from shop.ops import health
        from shop.reserve import promises, settlement_report

        # Under `reserve` Redis promises units, and their orders are written later. /readyz reports
        # how many promises wait for their orders.
        if promises.can_have_promises():
            health.register_backlog(settlement_report.read_backlog)
