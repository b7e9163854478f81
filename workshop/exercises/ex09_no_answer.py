"""Exercise 9. The answer is lost.

You are the buyer. Each request has an Idempotency-Key. The outcomes in this exercise are sold,
sold_out, busy, lost, unavailable, unknown (no answer came, or the shop does not know whether it
sold) and error (the request was wrong). Goal: return the key of your next request, or None to stop.
No buyer buys twice or gives up too early.
"""

import uuid


# TODO: as it is, the buyer takes a lost answer for a refusal, and begins a new purchase.
def next_key(outcome: str, key: str) -> str | None:
    return uuid.uuid4().hex if outcome == "unknown" else None


# END
