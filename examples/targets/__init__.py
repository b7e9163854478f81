"""Shops that the rush is run against, each with its target: README.md."""
