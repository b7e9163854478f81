"""The page and its requests; shop/urls.py includes them with SHOP_DEMO=1."""

from django.urls import path

from demo import views

urlpatterns = [
    path("", views.index, name="index"),
    path("state", views.state, name="state"),
    path("history", views.history, name="history"),
    path("strategies/<str:lock>/code", views.code, name="code"),
    path("sales/<int:sale_id>/curve", views.curve, name="curve"),
    path("rush", views.start_rush, name="rush"),
    path("rush/stop", views.stop_rush, name="stop-rush"),
    path("steps", views.begin_steps, name="steps"),
    path("steps/step", views.step, name="step"),
]
