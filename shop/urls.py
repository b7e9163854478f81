"""The addresses of the shop: its API, the admin, and in a demo the pages of the demo."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path

from shop import views
from shop.admin import change_own_password

urlpatterns = [
    path("buy", views.buy, name="buy"),
    path("restock", views.restock, name="restock"),
    path("strategies", views.strategies, name="strategies"),
    path("sales/latest", views.sale, name="latest-sale"),
    path("sales/<int:sale_id>", views.sale, name="sale"),
    path("sales/<int:sale_id>/orders", views.orders, name="orders"),
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("admin/password_change/", admin.site.admin_view(change_own_password)),
    path("admin/", admin.site.urls),
]
if settings.SHOP_DEMO:
    urlpatterns.append(path("", include("demo.urls")))

handler400 = "shop.views.bad_request"
handler403 = "shop.views.permission_denied"
handler404 = "shop.views.not_found"
handler500 = "shop.views.server_error"
