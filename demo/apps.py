from django.apps import AppConfig


class DemoConfig(AppConfig):
    """The demo's page, and the hooks that pause and record purchases. Needs SHOP_DEMO=1."""

    name = "demo"

    def ready(self) -> None:
        from demo import hooks, own_strategies

        hooks.install_hooks()
        own_strategies.add_own_strategies()
