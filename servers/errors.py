"""What the servers raise."""

from __future__ import annotations


class EmbeddedError(RuntimeError):
    """An embedded server did not start. The message names its log and says what to do."""
