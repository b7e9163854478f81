"""Code that strategies share: polling a lock, renewing it in a thread, retries, a channel."""
