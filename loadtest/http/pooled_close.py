"""gunicorn's gthread worker with one change, for the comparison in loadtest.commands.http_servers.

It waits in its main loop, up to two seconds each, for clients that do not close after
`Connection: close` (gunicorn 26 to 27). Here a thread of its pool waits.
"""

from __future__ import annotations

from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker


class PooledCloseWorker(ThreadWorker):  # type: ignore[misc]
    """gthread that closes in its pool."""

    def finish_request(self, conn: TConn, fs: Any) -> None:
        close = conn.close
        conn.close = lambda graceful=False: self.tpool.submit(close, graceful)
        super().finish_request(conn, fs)
