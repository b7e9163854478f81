"""Selling: the check and the decrement of the stock, the lock around them, and sales."""
