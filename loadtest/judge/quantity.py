"""Counts with their nouns, for sentences."""


def quantity(count: int, noun: str) -> str:
    """Return a count with a noun that forms its plural with an s: 1 order, 2 orders."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}s"
