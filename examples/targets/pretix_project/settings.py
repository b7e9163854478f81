"""pretix's own settings, and nothing that changes how it sells; no mail is sent."""

from __future__ import annotations

import os

from pretix.settings import *

EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
if os.environ["VARIANT"] == "unlocked":
    MIDDLEWARE = ["pretix_project.unlocked.unlocked", *MIDDLEWARE]
