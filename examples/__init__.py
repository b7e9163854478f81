"""Short programs to copy into a shop of your own. Each is run by tests/."""
