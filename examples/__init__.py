"""Short programs to copy into a shop of your own. tests/ runs each of them."""
