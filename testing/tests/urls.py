"""The views of these tests, for live_server."""

from __future__ import annotations

from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from testing.tests import test_interleaving

urlpatterns = [
    path("plain", csrf_exempt(test_interleaving.buy_plainly)),
    path("repaired", csrf_exempt(test_interleaving.buy_with_a_condition)),
]
