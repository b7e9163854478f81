"""What an operator sees of the shop: request ids, log lines, metrics."""
