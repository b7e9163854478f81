"""Conversion of errors of the shop and of its database to Django's CommandError."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import InterfaceError, OperationalError

from shop.errors import ShopError


@contextmanager
def raise_command_errors() -> Iterator[None]:
    """Turn a ShopError, or an error of the database, into a CommandError with a message."""
    try:
        yield
    except ShopError as error:
        message = str(error)
        if error.allowed:
            message = f"{message}: use {', '.join(error.allowed)}"
        raise CommandError(message) from error
    except (OperationalError, InterfaceError) as error:
        problem = f"the database failed ({str(error).strip()}): run manage.py check_stack"
        raise CommandError(problem) from error
