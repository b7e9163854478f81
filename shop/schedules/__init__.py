"""Real buyers, driven through a given order of steps by the actors of the plugin `testing`.

Tests, the workshop and examples use this package. No other part of the shop imports it, because
`testing` is not installed in production.
"""
