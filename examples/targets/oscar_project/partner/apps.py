"""Takes the place of oscar.apps.partner in INSTALLED_APPS."""

from __future__ import annotations

from oscar.apps.partner import apps


class PartnerConfig(apps.PartnerConfig):
    name = "oscar_project.partner"
