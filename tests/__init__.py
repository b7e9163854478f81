"""Tests of the repository itself: lock files, licences, documents, habits. None needs a server."""

from __future__ import annotations
