"""What touches Locust: its options, its processes, its web UI, and its private names."""
