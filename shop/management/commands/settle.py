"""manage.py settle: write the orders that the strategy `reserve` has promised."""

import signal
import threading
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from shop.reserve import settle


class Command(BaseCommand):
    help = (
        "Write the orders of promises (SHOP_LOCK=reserve) until SIGTERM. Several may run, and one "
        "that ends in the middle of a batch loses nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--alive", type=Path, metavar="FILE", help="touched while it works, for a health check"
        )

    def handle(self, *args: Any, alive: Path | None, **options: Any) -> None:
        stop = threading.Event()

        def end(*_: object) -> None:
            """Set `stop` in a thread: the main thread may hold the event's lock in stop.wait()."""
            threading.Thread(target=stop.set).start()

        for stop_signal in (signal.SIGTERM, signal.SIGINT):
            signal.signal(stop_signal, end)
        self.stdout.write("settling promises; SIGTERM ends it")
        self.stdout.flush()
        settle.settle_until(stop, alive=alive)
        self.stdout.write("settled all promises that it read")
