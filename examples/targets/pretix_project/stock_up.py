"""Put one ticket up for sale: python -m pretix_project.stock_up, after migrate."""

from __future__ import annotations

import django

django.setup()

from datetime import timedelta  # noqa: E402

from django.utils.timezone import now  # noqa: E402
from django_scopes import scopes_disabled  # noqa: E402
from pretix.base.models import Event, Organizer  # noqa: E402

with scopes_disabled():
    organizer = Organizer.objects.create(name="Apples", slug="apples")
    event = Event.objects.create(
        organizer=organizer,
        name="Harvest",
        slug="harvest",
        currency="EUR",
        date_from=now() + timedelta(days=30),
        live=True,
    )
    #: Minutes for which a cart keeps its ticket: 0 is the least that pretix allows, so that the last
    #: button decides who gets one.
    event.settings.reservation_time = 0
    ticket = event.items.create(name="Ticket", default_price=0)
    quota = event.quotas.create(name="Tickets", size=0)
    quota.items.add(ticket)
print(ticket.pk)
