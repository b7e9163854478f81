"""Tests of the repository itself: documents, compose, Kubernetes. None needs a server."""
