"""Tests of the repository itself: documents, compose, Kubernetes. None needs a server."""

from __future__ import annotations
