"""Drives real buyers through a given order of steps, with the actors of the plugin `testing`.

Tests, the workshop and examples use it. No other part of the shop imports it, because `testing` is
not installed in production.
"""
