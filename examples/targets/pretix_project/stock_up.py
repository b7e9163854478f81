"""Put one ticket up for sale, unless there is one: python -m pretix_project.stock_up."""

from __future__ import annotations

import sys
from datetime import timedelta

import django

django.setup()

from django.db.transaction import atomic  # noqa: E402
from django.utils.timezone import now  # noqa: E402
from django_scopes import scopes_disabled  # noqa: E402
from pretix.base.models import Event, Organizer  # noqa: E402

with scopes_disabled(), atomic():
    if Event.objects.exists():
        sys.exit()
    organizer = Organizer.objects.create(name="Apples", slug="apples")
    event = Event.objects.create(
        organizer=organizer,
        name="Harvest",
        slug="harvest",
        currency="EUR",
        date_from=now() + timedelta(days=30),
        live=True,
    )
    # Minutes for which a cart keeps its ticket. 0 is the least that pretix allows: then nothing is
    # decided before the last button.
    event.settings.reservation_time = 0
    ticket = event.items.create(name="Ticket", default_price=0)
    quota = event.quotas.create(name="Tickets", size=0)
    quota.items.add(ticket)
