"""Parts that strategies share: polling, a renewing thread, retries, a channel."""
