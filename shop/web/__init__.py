"""How a node speaks HTTP: waitress's event loop and parser in gunicorn's worker processes.

waitress reads whole requests and writes whole answers in one event loop, so that a slow client
costs a file descriptor and never a thread. gunicorn starts, watches, restarts and stops the
processes.

worker   one process: its loop, its heartbeat, and how it ends
lanes    which threads answer what: buyers who wait for a lock do not keep health probes waiting
server   the connections of one listener: their bounds in number and in time
channel  one connection: bounded bodies, errors as JSON, a close that loses no answer
listener the socket itself: how to end without resetting whoever has connected already
"""
