"""pretix's own settings, and one event with one ticket."""

from __future__ import annotations
