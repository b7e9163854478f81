from __future__ import annotations

import pytest
from django.test import Client


@pytest.mark.django_db(transaction=True)
def test_a_buyer_gets_an_apple() -> None:
    answer = Client().post("/buy", {"buyer": "ada", "lock": "redis"})
    assert answer.status_code == 201, answer.content
