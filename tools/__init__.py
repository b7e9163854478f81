"""A maintainer's tools: none is needed to run the shop or its load test."""
