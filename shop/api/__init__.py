"""HTTP: parsing of requests, JSON answers, the rate limit, refusal of other sites' pages."""
