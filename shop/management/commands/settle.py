"""manage.py settle: write the orders that the strategy `reserve` has promised."""

import signal
import threading
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from shop.reserve import settle


class Command(BaseCommand):
    help = (
        "Write the orders of promises (SHOP_LOCK=reserve) until SIGTERM. Several may run; one that "
        "ends in the middle of a batch leaves nothing undone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--alive", type=Path, metavar="FILE", help="touched while it works, for a health check"
        )

    def handle(self, *args: Any, alive: Path | None, **options: Any) -> None:
        stop = threading.Event()

        def end(*_: object) -> None:
            """In a thread: this one may be inside stop.wait(), with the lock that set() takes."""
            threading.Thread(target=stop.set).start()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        self.stdout.write("settling promises; SIGTERM ends it")
        self.stdout.flush()
        settle.run(stop, alive=alive)
        self.stdout.write("settled all that it read")
