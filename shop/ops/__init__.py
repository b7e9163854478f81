"""Operation of the shop: connections to servers, health, logs, metrics, security headers."""
