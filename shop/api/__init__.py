"""HTTP without Django's forms: requests parsed, answers in JSON, who may ask, how often."""
