#!/usr/bin/env python
"""Django's command line, with PostgreSQL and Valkey from pip wheels where no URL names others."""

import os
import sys

#: Commands that need no server.
WITHOUT_SERVERS = {"help", "--help", "-h", "--version", "version", "startproject", "startapp"}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    try:
        from django.core.management import execute_from_command_line

        from servers import embedded
    except ImportError as error:
        raise SystemExit(
            f"{error}. Install what the shop needs: make install (or pip install -r "
            "requirements.txt) and use the Python of .venv"
        ) from error
    if len(sys.argv) > 1 and sys.argv[1] not in WITHOUT_SERVERS:
        os.environ.setdefault("SHOP_DB_POOL", "0")  # one thread needs no pool
        try:
            embedded.provide_urls()
        except embedded.EmbeddedError as error:
            raise SystemExit(str(error)) from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
