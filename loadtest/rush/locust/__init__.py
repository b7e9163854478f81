"""The modules that depend on Locust: its options, processes, web UI and private names."""
