"""Exercise 9. The answer is lost.

You are the buyer. Each request has an Idempotency-Key. Outcomes: sold, sold_out, busy, lost,
unavailable, unknown (no answer came, or the shop does not know), error (the request was wrong).
Goal: say with which key to ask again, or None to stop. Nobody buys twice, or gives up too early.
"""

import uuid


# TODO: as it is, a lost answer is taken for a refusal, and the buyer begins anew.
def next_key(outcome: str, key: str) -> str | None:
    return uuid.uuid4().hex if outcome == "unknown" else None


# END
