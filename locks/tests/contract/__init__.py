"""What every door to the lock promises, tried through each of them."""
