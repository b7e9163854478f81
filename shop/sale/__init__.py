"""Selling: the check and the decrement, the lock around it, the sale."""
