"""What an operator runs the shop with: servers, checks, roles, health, logs, metrics."""
