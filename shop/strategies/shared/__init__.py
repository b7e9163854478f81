"""Code that strategies share: polling, a thread that renews, retries, a channel."""
