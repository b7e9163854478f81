from django.apps import AppConfig


class DemoConfig(AppConfig):
    """The page, its two stepped buyers, and the hooks. Installed only with SHOP_DEMO=1."""

    name = "demo"

    def ready(self) -> None:
        from demo import hooks, own_strategies

        hooks.install()
        own_strategies.install()
