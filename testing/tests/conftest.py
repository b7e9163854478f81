"""The tables of these tests."""

from collections.abc import Iterator

import pytest
from django.db import connection

from testing.tests.models import Sold, Stock


@pytest.fixture
def _tables(transactional_db: None) -> Iterator[None]:
    """Create the tables of Stock and Sold for the test."""
    with connection.schema_editor() as editor:
        editor.create_model(Stock)
        editor.create_model(Sold)
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(Sold)
        editor.delete_model(Stock)
