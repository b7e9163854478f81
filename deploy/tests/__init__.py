"""Tests of the Compose files, the scripts and the Kubernetes manifests. No test needs a server."""
