"""Tests of Compose's files, the scripts and the Kubernetes manifests. None needs a server."""
