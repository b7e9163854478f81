"""HTTP: parsing of requests, JSON answers, the rate limit."""
