"""Several locks at once, without a deadlock and without half of them."""
