"""What gunicorn runs: pretix, which waits longer for its lock."""

from __future__ import annotations

import django

django.setup()

from pretix.base.services import locking  # noqa: E402
from pretix.wsgi import application  # noqa: E402

# Who waits longer than 3 s is to be tried again, and without Celery that fails: the task gets its
# event a second time, as an object (TypeError). So let it wait; what the lock does stays the same.
locking.LOCK_ACQUISITION_TIMEOUT = 50

__all__ = ["application"]
