"""The decisions of the locks, without I/O: threads, asyncio and clusters share them.

The callers pass in the time and the replies of the server. See https://sans-io.readthedocs.io.
"""
