"""Oscar's partner app with one method changed, for the repaired shop (--repaired).

The app replaces Oscar's own in the way that Oscar's guide describes for a changed model.
"""

from oscar.apps.partner import apps


class PartnerConfig(apps.PartnerConfig):
    """Takes the place of Oscar's own PartnerConfig in INSTALLED_APPS."""

    name = "oscar_project.partner"
