"""The decisions of the locks, without I/O, shared by threads, asyncio and clusters.

The callers perform the I/O and pass in the server's replies. See https://sans-io.readthedocs.io.
"""
