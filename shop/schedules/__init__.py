"""Real purchases in threads, whose steps a test makes in a given order.

Tests, the workshop and examples use this package. No other part of the shop imports it, because
`testing` is not installed in production.
"""
