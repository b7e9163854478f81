"""A Django project with nothing in it but django-oscar."""

from __future__ import annotations
