"""make audit, with the real pip-audit and a database of the test's own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.tooling import run_tool

KNOWN: dict[str, dict[str, Any]] = {
    "flask": {
        "id": "TEST-2026-1",
        "affected": [
            {
                "package": {"name": "flask", "ecosystem": "PyPI"},
                "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "3.1.4"}]}],
            }
        ],
    }
}


class Database(BaseHTTPRequestHandler):
    """Answers as OSV does; knows of one vulnerability, and breaks when asked for `broken`."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = asked["package"]["name"]
        body = json.dumps({"vulns": [KNOWN[name]]} if name in KNOWN else {}).encode()
        self.send_response(500 if name == "broken" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def database() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The address of a port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1/query"


def lock_of(folder: Path, *packages: str) -> str:
    lock = folder / "test.lock"
    lock.write_text("".join(f"{each} --hash=sha256:{'0' * 64}\n" for each in packages))
    return str(lock)


def test_a_locked_package_with_a_known_vulnerability_fails(tmp_path: Path, database: str) -> None:
    lock = lock_of(tmp_path, "django==5.2.19", "flask==3.1.3")
    result = run_tool("tools.audit", "--osv-url", database, lock)
    assert result.returncode == 1, result.stderr
    assert "flask 3.1.3: TEST-2026-1, fixed in 3.1.4" in result.stderr
    assert "make lock ARGS=--upgrade" in result.stderr


def test_without_a_known_vulnerability_it_passes(tmp_path: Path, database: str) -> None:
    lock = lock_of(tmp_path, "django==5.2.19", "redis==8.1.0")
    result = run_tool("tools.audit", "--required", "--osv-url", database, lock)
    assert result.returncode == 0, result.stderr
    assert "test.lock: 2 packages audited" in result.stdout


def test_an_unreachable_database_is_said_aloud_and_fails_only_where_it_is_required(
    tmp_path: Path, nowhere: str
) -> None:
    lock = lock_of(tmp_path, "flask==3.1.3")
    for options, environment, expected in (
        ([], {}, 0),
        (["--required"], {}, 2),
        ([], {"AUDIT_REQUIRED": "1"}, 2),
    ):
        result = run_tool("tools.audit", *options, "--osv-url", nowhere, lock, **environment)
        assert result.returncode == expected
        assert "NOT AUDITED: the vulnerability database is not reachable" in result.stderr
        assert "audited" not in result.stdout


def test_an_audit_that_breaks_half_way_is_no_pass(tmp_path: Path, database: str) -> None:
    lock = lock_of(tmp_path, "django==5.2.19", "broken==1.0")
    result = run_tool("tools.audit", "--osv-url", database, lock)
    assert result.returncode == 2
    assert "pip-audit failed on test.lock" in result.stderr


def test_the_locks_are_ones_that_pip_audit_reads(database: str) -> None:
    result = run_tool("tools.audit", "--osv-url", database)
    assert result.returncode == 1, result.stderr
    assert "flask" in result.stderr
    assert "requirements-dev.lock: " in result.stdout
    assert "requirements-tools.lock: " in result.stdout
