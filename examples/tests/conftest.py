"""Fixtures: the examples' tables, in the test's own database, and a client of an empty Redis."""

import os
from collections.abc import Iterator

import pytest
import redis
from django.db import connection

from examples.models import Order, Product


@pytest.fixture(autouse=True)
def _tables(transactional_db: None) -> Iterator[None]:
    """Create the tables of Product and Order for the test."""
    with connection.schema_editor() as editor:
        editor.create_model(Product)
        editor.create_model(Order)
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(Order)
        editor.delete_model(Product)


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    """Yield a client of Redis, whose database is emptied first."""
    with redis.Redis.from_url(os.environ["REDIS_URL"], socket_timeout=5) as client:
        client.flushdb()
        yield client
