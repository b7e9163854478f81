"""What can be said of docker-compose.yml without Docker."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
STACK: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
ONE_SHOT = {"secrets", "migrate", "locust"}
NODES = {"web-a", "web-b"}


def defaults(text: str) -> str:
    """`text` as it is when no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def gunicorn(name: str) -> int:
    """A number that shop/gunicorn_conf.py sets, or its default where the environment may set it;
    read, because the load test imports no shop."""
    for line in ast.parse((ROOT / "shop/gunicorn_conf.py").read_text()).body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == name:
            numbers = [n.value for n in ast.walk(line.value) if isinstance(n, ast.Constant)]
            return int(str(numbers[-1]))
    raise LookupError(name)


def test_the_file_names_no_version_which_compose_only_warns_of() -> None:
    assert "version" not in STACK


def test_the_load_runs_only_when_it_is_asked_for() -> None:
    asked_for = {name: one["profiles"] for name, one in SERVICES.items() if "profiles" in one}
    of_the_articles = ["zookeeper", *(f"redlock-{number}" for number in range(1, 6))]
    assert asked_for == {
        "locust": ["load"],
        "locust-ui": ["ui"],
        **{name: ["articles"] for name in of_the_articles},
    }


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_that_stays_has_a_healthcheck(name: str) -> None:
    assert ("healthcheck" in SERVICES[name]) == (name not in ONE_SHOT)


@pytest.mark.parametrize("name", SERVICES)
def test_every_wait_is_for_health_or_for_a_one_shot_that_succeeded(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        wanted = "completed_successfully" if other in ONE_SHOT else "healthy"
        assert how == {"condition": f"service_{wanted}"}, other


@pytest.mark.parametrize("name", SERVICES)
def test_no_port_is_open_beyond_loopback_and_every_one_can_be_moved(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", defaults(port))
        assert re.search(r"\$\{\w+_PORT:-\d+\}:\d+$", port)


def test_only_the_shop_and_locusts_page_are_published() -> None:
    assert {name for name in SERVICES if "ports" in SERVICES[name]} == {"nginx", "locust-ui"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_ours_or_pinned(name: str) -> None:
    service = SERVICES[name]
    if "build" in service:
        assert service["pull_policy"] == "never"
    else:
        assert re.search(r":\d+(\.\d+)*$", service["image"])


def test_our_image_is_built_on_a_pinned_one_and_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert "FROM python:3.13-slim" in lines
    assert [line for line in lines if line.startswith("USER ")] == ["USER oversold"]
    assert lines[-1].startswith('CMD ["gunicorn", ')  # a shell as PID 1 would keep SIGTERM


def test_both_nodes_are_the_same() -> None:
    assert SERVICES["web-a"] == SERVICES["web-b"]


@pytest.mark.parametrize("name", [*sorted(NODES), "nginx"])
def test_docker_waits_longer_than_a_node_takes_to_finish_its_purchases(name: str) -> None:
    assert seconds(SERVICES[name]["stop_grace_period"]) > gunicorn("graceful_timeout")


def test_nginx_hangs_up_first_or_it_would_send_a_purchase_into_a_closed_connection() -> None:
    nginx = (ROOT / "docker/nginx.conf").read_text()
    upstream = nginx[nginx.index("upstream") : nginx.index("    server {")]
    (idle,) = re.findall(r"keepalive_timeout (\d+)s", upstream)
    assert int(idle) < gunicorn("keepalive")
    (patience,) = re.findall(r"proxy_read_timeout (\d+)s", nginx)
    assert int(patience) > gunicorn("timeout")


def test_nginx_never_sends_a_purchase_twice() -> None:
    nginx = (ROOT / "docker/nginx.conf").read_text()
    assert re.findall(r"proxy_next_upstream (.+);", nginx) == ["error timeout"]


def test_postgresql_takes_every_pool_of_both_nodes_and_more() -> None:
    (most,) = re.findall(r"max_connections=(\d+)", " ".join(SERVICES["postgres"]["command"]))
    (pool,) = re.findall(r"SHOP_DB_POOL=(\d+)", (ROOT / ".env.example").read_text())
    workers = int(defaults(SERVICES["web-a"]["environment"]["WEB_WORKERS"]))
    assert int(most) >= len(NODES) * workers * int(pool) + 20


def test_redis_evicts_no_lock_and_keeps_nothing_on_disk() -> None:
    command = SERVICES["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--save"], options["--appendonly"]) == ("", "no")


def test_no_secret_is_in_the_file_or_in_the_image() -> None:
    for service in SERVICES.values():
        for name, value in environment(service).items():
            if re.search("SECRET|PASSWORD|TOKEN", name) and not name.endswith("_TTL"):
                assert name.endswith("_FILE"), name
                assert value.startswith("/run/oversold/")
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"  # then what is let in


def environment(service: Mapping[str, Any]) -> Mapping[str, str]:
    given: Mapping[str, str] = service.get("environment", {})
    return given


def test_secrets_are_random_private_and_kept(tmp_path: Path) -> None:
    def made() -> dict[str, str]:
        subprocess.run([ROOT / "docker/make_secrets.sh", tmp_path], check=True)
        return {path.name: path.read_text() for path in tmp_path.iterdir()}

    first = made()
    assert first.keys() == {"secret_key", "restock_token", "postgres_password", "pgpass"}
    assert first["pgpass"] == f"*:*:*:oversold:{first['postgres_password']}"
    assert len(set(first.values())) == 4
    assert all(len(value) >= 64 for value in first.values())
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert made() == first


def test_the_shop_reads_a_secret_from_the_file_that_a_name_with_file_at_its_end_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("from the file")
    told = subprocess.run(
        [sys.executable, "-c", "from shop import settings; print(settings.SHOP_RESTOCK_TOKEN)"],
        cwd=ROOT,
        env={**os.environ, "SHOP_RESTOCK_TOKEN_FILE": str(tmp_path / "token")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "from the file\n"
