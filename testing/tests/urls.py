"""The views for the tests with live_server."""

from django.http import HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from testing.tests.models import buy_plainly, buy_with_a_condition

urlpatterns = [
    path("plain", csrf_exempt(lambda request: HttpResponse(status=buy_plainly()))),
    path("repaired", csrf_exempt(lambda request: HttpResponse(status=buy_with_a_condition()))),
]
