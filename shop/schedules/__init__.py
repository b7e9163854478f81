"""Drives real buyers through a given order of steps, on top of the pytest plugin `testing`.

For tests, the workshop and examples. No other part of the shop imports it: an installation has no
`testing`.
"""
