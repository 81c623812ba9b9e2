"""Addresses of the shop."""

from django.contrib import admin
from django.urls import path

from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/", views.place_order),
    path("orders/<int:order_id>/points/", views.give_points),
    path("results/<str:result_id>/", views.show_result),
]
