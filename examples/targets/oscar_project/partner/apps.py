"""Takes the place of oscar.apps.partner in INSTALLED_APPS."""

from oscar.apps.partner import apps


class PartnerConfig(apps.PartnerConfig):
    name = "oscar_project.partner"
