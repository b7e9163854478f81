from django.contrib import admin
from django.urls import path

from shop import views
from shop.demo import page

urlpatterns = [
    path("", page.index, name="index"),
    path("state", page.state, name="state"),
    path("history", page.history, name="history"),
    path("strategies/<str:lock>/code", page.code, name="code"),
    path("rush", page.start_rush, name="rush"),
    path("rush/stop", page.stop_rush, name="stop-rush"),
    path("steps", page.begin_steps, name="steps"),
    path("steps/step", page.step, name="step"),
    path("buy", views.buy, name="buy"),
    path("restock", views.restock, name="restock"),
    path("strategies", views.strategies, name="strategies"),
    path("sales/latest", views.sale, name="latest-sale"),
    path("sales/<int:sale_id>", views.sale, name="sale"),
    path("sales/<int:sale_id>/orders", views.orders, name="orders"),
    path("sales/<int:sale_id>/curve", views.curve, name="curve"),
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("admin/", admin.site.urls),
]
handler400 = "shop.views.bad_request"
handler403 = "shop.views.permission_denied"
handler404 = "shop.views.not_found"
handler500 = "shop.views.server_error"
