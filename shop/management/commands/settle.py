"""manage.py settle: write the orders of promises to PostgreSQL.

A promise is a unit that Redis has sold to a buyer under the strategy `reserve`, and whose order is
not written yet.
"""

import signal
import threading
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from shop.reserve import settle


class Command(BaseCommand):
    help = (
        "Write the orders that buyers were promised (SHOP_LOCK=reserve), until SIGTERM. Several of "
        "these processes may run. If one ends in the middle of a batch, nothing is lost."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--alive",
            type=Path,
            metavar="FILE",
            help="a file to touch after each batch, for a health check",
        )

    def handle(self, *args: Any, alive: Path | None, **options: Any) -> None:
        stop = threading.Event()

        def request_stop(*_: object) -> None:
            """Set `stop` in another thread, to prevent a deadlock.

            The signal interrupts the main thread, which may hold the lock inside `stop`.
            """
            threading.Thread(target=stop.set).start()

        for stop_signal in (signal.SIGTERM, signal.SIGINT):
            signal.signal(stop_signal, request_stop)
        self.stdout.write("writing the orders of promises; SIGTERM stops this process")
        self.stdout.flush()
        settle.settle_until(stop, alive_file=alive)
        self.stdout.write("stopped; promises without an order stay in Redis for the next process")
