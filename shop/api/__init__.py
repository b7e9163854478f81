"""HTTP without Django's forms: requests parsed, answers in JSON, other sites' pages refused."""
