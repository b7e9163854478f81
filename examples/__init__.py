"""Short programs to copy into your own shop. The tests in tests/ run each of them."""
