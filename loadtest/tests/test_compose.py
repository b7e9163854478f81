"""What can be said of the compose files without Docker."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest

from loadtest.tests.composed import PRODUCTION, ROOT, SERVICES, STACK, defaults

ONE_SHOT = {"secrets", "migrate", "locust"}
NODES = {"web-a", "web-b"}


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
        "locust-worker": ["ui"],
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


def test_the_buyers_are_in_workers_of_the_web_ui_which_can_be_scaled_and_know_no_secret() -> None:
    """`--scale locust-worker=4`: a service with a name or a port of its own could run once."""
    worker, page = SERVICES["locust-worker"], SERVICES["locust-ui"]
    assert {"container_name", "ports", "volumes", "environment"} & set(worker) == set()
    assert worker["entrypoint"] == ["python", "-m", "locust"]
    assert worker["command"] == ["--worker", "--master-host", "locust-ui"]
    assert "--master" in page["command"]
    assert page["command"][-2:] == ["--master-bind-host", "0.0.0.0"], "locust.conf has loopback"
    assert not any("5557" in port for port in page["ports"]), "whoever reaches it is a worker"
    assert "master-bind-host = 127.0.0.1" in (ROOT / "locust.conf").read_text().splitlines()


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


def test_both_nodes_are_the_same() -> None:
    assert SERVICES["web-a"] == SERVICES["web-b"]


@pytest.mark.parametrize("name", [*sorted(NODES), "nginx"])
def test_docker_waits_longer_than_a_node_takes_to_finish_its_purchases(name: str) -> None:
    assert seconds(SERVICES[name]["stop_grace_period"]) > gunicorn("graceful_timeout")


def test_nginx_hangs_up_first_or_it_would_send_a_purchase_into_a_closed_connection() -> None:
    nginx = (ROOT / "docker/nginx.conf").read_text()
    upstream = nginx[nginx.index("upstream") : nginx.index("    server {")]
    assert "include /tmp/nodes.conf;" in upstream
    (idle,) = re.findall(r"keepalive_timeout (\d+)s", upstream)
    assert int(idle) < gunicorn("keepalive")
    (timeout,) = re.findall(r"proxy_read_timeout (\d+)s", nginx)
    assert int(timeout) > gunicorn("timeout")


def test_nginx_never_sends_a_purchase_twice() -> None:
    nginx = (ROOT / "docker/nginx.conf").read_text()
    assert re.findall(r"proxy_next_upstream (.+);", nginx) == ["error timeout"]


def test_postgresql_takes_every_pool_of_four_nodes_and_more() -> None:
    for command in (SERVICES["postgres"]["command"], PRODUCTION["postgres"]["command"]):
        (most,) = re.findall(r"max_connections=(\d+)", " ".join(command))
        (pool,) = re.findall(r"SHOP_DB_POOL=(\d+)", (ROOT / ".env.example").read_text())
        workers = int(defaults(SERVICES["web-a"]["environment"]["WEB_WORKERS"]))
        assert int(most) >= 4 * workers * int(pool) + 20


@pytest.mark.parametrize("services", [SERVICES, PRODUCTION], ids=["demo", "production"])
def test_redis_evicts_no_lock_keeps_nothing_on_disk_and_asks_for_a_user(
    services: dict[str, Any],
) -> None:
    command = services["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--save"], options["--appendonly"]) == ("", "no")
    assert options["--aclfile"] == "/run/oversold/users.acl"


@pytest.mark.parametrize("name", ["demo", "production", "reserve"])
def test_redis_knows_the_shop_and_the_health_check_alone(name: str) -> None:
    lines = (ROOT / f"docker/redis.{name}.acl").read_text().splitlines()
    users = [line.split() for line in lines if line and not line.startswith("#")]
    assert [user[1:3] for user in users] == [["default", "off"], ["health", "on"], ["shop", "on"]]
    for user in users[1:]:
        assert {"resetchannels", "resetkeys", "-@all"} <= set(user)
        assert not {"~*", "&*", "+@all", "allkeys", "allchannels", "allcommands"} & set(user)
    assert users[1][-1] == "+ping"


@pytest.mark.parametrize("name", ["demo", "reserve"])
def test_the_demos_acl_and_that_of_reservations_are_productions_and_more(name: str) -> None:
    more, production = ((ROOT / f"docker/redis.{acl}.acl").read_text().splitlines()[-1]
                        for acl in (name, "production"))  # fmt: skip
    assert more.startswith(production)


def test_productions_acl_allows_what_the_readme_of_the_locks_asks_for() -> None:
    """A command that a script calls now and then is missed by a short rush, and ends a long one."""
    asked = re.search(r"`user locks on >PASSWORD (.*?)`", (ROOT / "locks/README.md").read_text())
    assert asked is not None
    given = (ROOT / "docker/redis.production.acl").read_text().splitlines()[-1].split()
    assert set(asked[1].split()) <= set(given)


def test_the_demos_acl_allows_every_command_of_every_script() -> None:
    given = (ROOT / "docker/redis.demo.acl").read_text().splitlines()[-1].split()
    called = set()
    for room in ("locks", "shop"):
        for script in (ROOT / room).rglob("*.lua"):
            called |= set(re.findall(r"redis\.p?call\('(\w+)'", script.read_text().lower()))
    assert {"get", "publish", "pubsub"} <= called
    in_a_cluster_alone = {"spublish"}
    assert called - {"pubsub"} - in_a_cluster_alone <= {rule[1:] for rule in given}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_read_only_without_capabilities_and_not_root(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    if name == "secrets":  # gives its copies to other users
        assert (service["user"], service["cap_add"]) == ("0:0", ["CHOWN", "DAC_OVERRIDE"])
        assert service["network_mode"] == "none"
    else:
        assert "cap_add" not in service
        assert "privileged" not in service
        assert "build" in service or re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])


def test_the_shops_role_is_not_the_one_that_migrates_and_neither_is_the_superuser() -> None:
    roles = [
        re.findall(r"postgresql://(\w+)@", services[name]["environment"]["DATABASE_URL"])
        for services in (SERVICES, PRODUCTION)
        for name in ("web-a", "migrate")
    ]
    assert roles == [["oversold_app"], ["oversold_migrate"]] * 2
    assert "POSTGRES_USER" not in SERVICES["postgres"]["environment"]
    created = re.findall(r"CREATE ROLE (.+);", (ROOT / "docker/roles.sql").read_text())
    assert created == [f"oversold_{r} LOGIN PASSWORD :'{r}_password'" for r in ("migrate", "app")]


def test_the_image_starts_gunicorn_itself_and_no_shell_that_does_not_know_the_command() -> None:
    """A list that is no JSON, with a comma at its end, say, is a line for /bin/sh to Docker. As
    PID 1, a shell would also keep SIGTERM."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (command,) = [line.removeprefix("CMD ") for line in lines if line.startswith("CMD ")]
    assert json.loads(command)[0] == "gunicorn"
