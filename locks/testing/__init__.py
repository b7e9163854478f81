"""What the tests and the benchmark share: servers, proxies, processes."""
