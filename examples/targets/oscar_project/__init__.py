"""A Django project with nothing in it but django-oscar."""
