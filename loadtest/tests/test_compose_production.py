"""What docker-compose.production.yml makes of the stack, seen without Docker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from loadtest.tests.composed import PRODUCTION, ROOT, SERVICES, defaults, environment


def test_production_is_no_demo_and_has_no_locust() -> None:
    assert PRODUCTION["locust"] is PRODUCTION["locust-ui"] is PRODUCTION["locust-worker"] is None
    for name in ("web-a", "web-b", "migrate"):
        given = PRODUCTION[name]["environment"]
        assert given["SHOP_DEMO"] == "0"
        assert defaults(given["SHOP_LOCK"]) == "redis"
        assert given["REDLOCK_URLS"] == given["ZOOKEEPER_HOSTS"] == ""
        assert given["ALLOWED_HOSTS"].startswith("${SHOP_HOSTS:?"), "nobody starts it without"


def test_production_speaks_tls_to_postgresql_and_redis_and_checks_who_answers() -> None:
    for name in ("web-a", "web-b", "migrate"):
        given = PRODUCTION[name]["environment"]
        assert "sslmode=verify-full&sslrootcert=/run/oversold/ca.crt" in given["DATABASE_URL"]
        assert "rediss://redis:6379/0?ssl_ca_certs=/run/oversold/ca.crt" in given["REDIS_URL"]
    assert "ssl=on" in PRODUCTION["postgres"]["command"]
    command = PRODUCTION["redis"]["command"]
    assert command[command.index("--port") + 1] == "0", "no port without TLS"


def test_production_publishes_https_on_loopback_and_nothing_else() -> None:
    published = {name: one["ports"] for name, one in PRODUCTION.items() if one and "ports" in one}
    assert {name: [defaults(port) for port in ports] for name, ports in published.items()} == {
        "nginx": ["127.0.0.1:8443:8443"]
    }


def test_productions_nodes_count_for_prometheus_log_json_and_no_one_else_has_the_token() -> None:
    for name in ("web-a", "web-b"):
        given = PRODUCTION[name]["environment"]
        assert given["METRICS_TOKEN_FILE"] == "/run/oversold/metrics_token"
        assert defaults(given["LOG_FORMAT"]) == "json"
    for name in set(SERVICES) - {"web-a", "web-b"}:
        given = (PRODUCTION.get(name) or {}).get("environment", {})
        assert "METRICS_TOKEN_FILE" not in given, f"{name} does not mount it"


def test_productions_environment_passes_check_deploy(tmp_path: Path) -> None:
    """But for the host names, which it asks for."""
    subprocess.run([ROOT / "docker/make_secrets.sh", tmp_path], check=True)
    given = {**environment(SERVICES["web-a"]), **environment(PRODUCTION["web-a"])}
    given |= {"ALLOWED_HOSTS": "shop.example.com"}
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "django", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            **plain,
            **{
                name: defaults(str(value)).replace("/run/oversold", str(tmp_path / "shop"))
                for name, value in given.items()
            },
        },
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
