"""What a demo may do to the shop, and nothing else may: SHOP_DEMO=1."""

from __future__ import annotations

import time

from django.conf import settings

from locks import points


def install_pauses() -> None:
    """Pause at the points that SHOP_DEMO_PAUSES names. Nothing happens outside a demo."""
    if not settings.SHOP_DEMO or not settings.SHOP_DEMO_PAUSES:
        return
    pauses = {name: float(ms) / 1000 for name, ms in settings.SHOP_DEMO_PAUSES.items()}

    def pause(name: str) -> None:
        if name in pauses:
            time.sleep(pauses[name])

    points.install(pause)
