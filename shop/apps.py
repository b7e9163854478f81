from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self) -> None:
        from shop import checks, strategies  # noqa: F401  (importing them registers them)
        from shop.ops import health
        from shop.reserve import promises, settlement_report

        # The strategy `reserve` sells units in Redis and writes their orders later. /readyz reports
        # how many orders are not written yet.
        if promises.can_have_promises():
            health.register_backlog_reader(settlement_report.read_backlog)
