from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "shop"

    def ready(self) -> None:
        from shop import checks, strategies  # noqa: F401  (registers)
        from shop.demo import hooks, mine
        from shop.ops import health
        from shop.reserve import figures, promises

        if promises.in_use():
            health.backlog = figures.backlog
        hooks.install()
        mine.install()
