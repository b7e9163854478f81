from __future__ import annotations

from django.contrib import admin
from django.urls import path

from shop import views
from shop.demo import page

urlpatterns = [
    path("", page.index),
    path("state", page.state),
    path("history", page.history),
    path("strategies/<str:lock>/code", page.code),
    path("rush", page.start_rush),
    path("steps", page.begin_steps),
    path("steps/step", page.step),
    path("buy", views.buy),
    path("restock", views.restock),
    path("strategies", views.strategies),
    path("sales/latest", views.latest_sale),
    path("sales/<int:sale_id>", views.sale),
    path("sales/<int:sale_id>/orders", views.orders),
    path("sales/<int:sale_id>/curve", views.curve),
    path("openapi.json", views.openapi_json),
    path("healthz", views.healthz),
    path("readyz", views.readyz),
    path("admin/", admin.site.urls),
]
handler400 = "shop.views.not_taken"
handler403 = "shop.views.refused"
handler404 = "shop.views.not_found"
handler500 = "shop.views.failed"
