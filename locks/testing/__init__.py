"""Servers, proxies and processes for the tests and the benchmark."""
