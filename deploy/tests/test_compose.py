"""The compose files, read without Docker: open ports, secrets, and the order of stopping."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from servers.embedded import ROOT
from shop import gunicorn_conf

DOCKER = ROOT / "deploy" / "docker"
FILES = ("docker-compose.yml", "deploy/docker/production.yml")


class Loader(yaml.SafeLoader):
    """A YAML loader that reads a value with one of Compose's own tags as if it had none."""


def _list(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[Any]:
    return list(loader.construct_sequence(node))


Loader.add_constructor("!override", _list)
Loader.add_constructor("!reset", lambda loader, node: None)
SERVICES, PRODUCTION = (yaml.load((ROOT / name).read_text(), Loader)["services"] for name in FILES)
NGINX = (DOCKER / "nginx.conf").read_text()
#: Service -> the volume of secrets that it mounts.
MOUNTS = {
    **dict.fromkeys(["web-a", "web-b", "settle"], "secrets-shop"),
    **dict.fromkeys(["locust", "locust-ui"], "secrets-locust"),
    **dict.fromkeys(["redis", *(f"redlock-{n}" for n in range(1, 6))], "secrets-redis"),
    "migrate": "secrets-migrate",
    "postgres": "secrets-postgres",
}
#: Service of make_secrets.sh -> what it gets: only its own password, and the key of no certificate
#: but its own.
GIVEN = {
    "shop": {
        "secret_key",
        "restock_token",
        "metrics_token",
        "redis_password",
        "pgpass_app",
        "ca.crt",
    },
    "migrate": {"pgpass_migrate", "ca.crt"},
    "postgres": {
        "postgres_password",
        "migrate_password",
        "app_password",
        "postgres.crt",
        "postgres.key",
    },
    "redis": {"users.acl", "redis.crt", "redis.key", "ca.crt"},
    "locust": {"restock_token"},
    "nginx": {"tls.crt", "tls.key"},
}


#: A password of the reader's.
OWN = "0a" * 32


def defaults(text: object) -> str:
    """Return a text as Compose reads it if no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(text))


@pytest.mark.parametrize("files", [FILES[:1], FILES])
def test_compose_takes_the_files(files: tuple[str, ...]) -> None:
    if not shutil.which("docker") or subprocess.run(["docker", "compose", "version"]).returncode:
        pytest.skip("docker compose is not installed")
    command = ["docker", "compose", *(word for name in files for word in ("-f", name)), "config"]
    subprocess.run([*command, "-q"], cwd=ROOT, env={**os.environ, "SHOP_HOSTS": "x"}, check=True)


# --- what is open ---------------------------------------------------------------------------------


@pytest.mark.parametrize("services", [SERVICES, PRODUCTION], ids=["demo", "production"])
def test_only_nginx_and_locust_are_published_beyond_loopback(
    services: dict[str, Any],
) -> None:
    published = {
        name: service["ports"]
        for name, service in services.items()
        if service and "ports" in service
    }
    assert set(published) <= {"nginx", "locust-ui"}
    for (port,) in published.values():
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", defaults(port))


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
        assert "build" in service or re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])


def test_production_is_no_demo_and_verifies_its_servers() -> None:
    assert PRODUCTION["locust"] is PRODUCTION["locust-ui"] is PRODUCTION["locust-worker"] is None
    for name in ("web-a", "web-b", "migrate"):
        environment_of_service = PRODUCTION[name]["environment"]
        assert environment_of_service["SHOP_DEMO"] == "0"
        assert environment_of_service["ALLOWED_HOSTS"].startswith("${SHOP_HOSTS:?"), (
            "nobody starts it without"
        )
        assert (
            "sslmode=verify-full&sslrootcert=/run/oversold/ca.crt"
            in environment_of_service["DATABASE_URL"]
        )
        assert (
            "rediss://redis:6379/0?ssl_ca_certs=/run/oversold/ca.crt"
            in environment_of_service["REDIS_URL"]
        )
    command = PRODUCTION["redis"]["command"]
    assert command[command.index("--port") + 1] == "0", "no port without TLS"


def test_productions_environment_passes_check_deploy(tmp_path: Path) -> None:
    """Only the host names are missing, which the operator has to set."""
    make_secrets(tmp_path)
    settings_of_node = {**SERVICES["web-a"]["environment"], **PRODUCTION["web-a"]["environment"]}
    own = {name: defaults(value) for name, value in settings_of_node.items()}
    own = {
        name: value.replace("/run/oversold", f"{tmp_path}/shop") for name, value in own.items()
    } | {"ALLOWED_HOSTS": "shop.example.com"}
    passes_check_deploy(own)


def passes_check_deploy(environment: dict[str, str]) -> None:
    """Return whether Django's deployment checks pass in this environment."""
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    process = subprocess.run(
        [sys.executable, "-m", "django", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={"DJANGO_SETTINGS_MODULE": "shop.settings"} | plain | environment,
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stderr) == (0, "")


# --- what a container may reach, and take ---------------------------------------------------------

BACK = {"postgres", "redis", "zookeeper", *(f"redlock-{number}" for number in range(1, 6))}
BOTH = {"web-a", "web-b", "migrate", "settle"}


def test_only_the_shop_reaches_its_servers() -> None:
    networks = yaml.load((ROOT / FILES[0]).read_text(), Loader)["networks"]
    assert networks == {"front": None, "back": {"internal": True}}
    for name, service in SERVICES.items():
        if name == "secrets":
            assert "networks" not in service
        elif name in BACK:
            assert service["networks"] == ["back"]
        else:
            assert service["networks"] == (["front", "back"] if name in BOTH else ["front"])


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_bounded(name: str) -> None:
    """Memory, processes, temporary files and logs have a limit."""
    service = SERVICES[name]
    assert re.fullmatch("[12]g", service["mem_limit"])
    assert 0 < service["pids_limit"] <= 2048
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
    for folder in service["tmpfs"]:
        assert re.search(r"[:,]size=\d+m$", folder), folder


HEALTH_CHECKS = {
    f"{name}, {stack}": service["healthcheck"]["test"]
    for stack, services in (("demo", SERVICES), ("production", PRODUCTION))
    for name, service in services.items()
    if service and re.search("https?://", str(service.get("healthcheck")))
}


class Healthy(BaseHTTPRequestHandler):
    """A handler that answers every GET with 200."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("name", HEALTH_CHECKS)
def test_health_check_ignores_a_proxy(name: str) -> None:
    """Docker passes the HTTP_PROXY of its client's configuration to every container."""
    dead = "http://127.0.0.1:1"
    environment = {**os.environ, "http_proxy": dead, "HTTP_PROXY": dead, "all_proxy": dead}
    for name_of_exceptions in ("no_proxy", "NO_PROXY"):
        environment.pop(name_of_exceptions, None)
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server_url = f"http://127.0.0.1:{server.server_port}"
        command = [
            re.sub(r"https?://127.0.0.1:\d+", server_url, word) for word in HEALTH_CHECKS[name]
        ]
        programs = {"python": sys.executable}
        process = subprocess.run(
            [programs.get(command[1], command[1]), *command[2:]],
            env=environment,
        )
        server.shutdown()
    assert process.returncode == 0


# --- who waits for whom ---------------------------------------------------------------------------


def test_nginx_closes_idle_connections_before_the_node_does() -> None:
    """Otherwise nginx could send a purchase over a connection that the node has closed."""
    upstream = NGINX[NGINX.index("upstream") : NGINX.index("    server {")]
    (idle,) = re.findall(r"keepalive_timeout (\d+)s", upstream)
    (longest,) = re.findall(r"proxy_read_timeout (\d+)s", NGINX)
    assert int(idle) < gunicorn_conf.keepalive
    assert int(longest) > gunicorn_conf.timeout
    assert re.findall(r"proxy_next_upstream (.+);", NGINX) == ["error timeout"], "never twice"
    for name in ("web-a", "web-b", "nginx"):
        grace = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
        assert grace > gunicorn_conf.graceful_timeout


@pytest.mark.parametrize("services", [SERVICES, PRODUCTION], ids=["demo", "production"])
def test_servers_fit_four_nodes_and_evict_no_lock(
    services: dict[str, Any],
) -> None:
    command = services["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--save"], options["--appendonly"]) == ("", "no")
    (max_connections,) = re.findall(
        r"max_connections=(\d+)", " ".join(services["postgres"]["command"])
    )
    (pool,) = re.findall(r"SHOP_DB_POOL=(\d+)", (ROOT / ".env.example").read_text())
    workers = int(defaults(SERVICES["web-a"]["environment"]["WEB_WORKERS"]))
    assert int(max_connections) >= 4 * workers * int(pool) + 20


# --- who may do what ------------------------------------------------------------------------------


def rules(name: str) -> list[str]:
    """Return the commands and keys that an ACL file allows to the shop."""
    return (DOCKER / f"redis.{name}.acl").read_text().splitlines()[-1].split()


def test_redis_acl_allows_what_the_scripts_need_and_no_more() -> None:
    """A short rush may not reach a command that a script rarely calls."""
    for name in ("demo", "production", "reserve"):
        shop = rules(name)
        assert shop[:5] == ["user", "shop", "on", "#PASSWORD_SHA256", "resetchannels"]
        assert {"resetkeys", "-@all"} <= set(shop)
        assert not {"~*", "&*", "+@all", "allkeys", "allchannels", "allcommands"} & set(shop)
        assert set(rules("production")) <= set(shop)
        assert "\nuser default off\n" in (DOCKER / f"redis.{name}.acl").read_text()
    documented_rule = re.search(
        r"`user locks on >PASSWORD (.*?)`", (ROOT / "locks/README.md").read_text()
    )
    assert documented_rule is not None
    assert set(documented_rule[1].split()) <= set(rules("production"))
    commands_used = {
        command
        for room in ("locks", "shop")
        for script in (ROOT / room).rglob("*.lua")
        for command in re.findall(r"redis\.p?call\('(\w+)'", script.read_text().lower())
    }
    assert {"get", "publish"} <= commands_used
    only_in_a_cluster = {"spublish"}
    assert commands_used - {"pubsub"} - only_in_a_cluster <= {rule[1:] for rule in rules("demo")}


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_mounts_its_own_secrets_and_no_others(name: str) -> None:
    volumes = [volume.split(":") for volume in SERVICES[name].get("volumes", [])]
    secret = {source: mode for source, _, *mode in volumes if re.match("vault|secrets", source)}
    if name == "secrets":
        assert set(secret) == {"vault", *(f"secrets-{service}" for service in GIVEN)}
    else:
        assert secret == ({MOUNTS[name]: ["ro"]} if name in MOUNTS else {})
    for variable, value in SERVICES[name].get("environment", {}).items():
        if re.search("SECRET|PASSWORD|TOKEN", variable) and not variable.endswith("_TTL"):
            assert variable.endswith("_FILE")
            assert value == "" or value.startswith("/run/oversold/")


def make_secrets(folder: Path, *extra_folders: Path, **environment: str) -> dict[str, str]:
    """Run the script, and return everything that it has made, by path."""
    command = [DOCKER / "make_secrets.sh", folder, *extra_folders]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_each_service_is_given_its_own_secrets_random_private_and_kept(tmp_path: Path) -> None:
    users_folder = tmp_path / "given"
    users_folder.mkdir()
    (users_folder / "redis_password").write_text(OWN + "\n")
    first = make_secrets(tmp_path, users_folder, REDIS_ACL="production")
    assert first["shop/redis_password"] == OWN
    assert f"#{sha256(OWN.encode()).hexdigest()} " in first["redis/users.acl"]
    assert "~stock:*" not in first["redis/users.acl"]
    for service, names in GIVEN.items():
        assert {path.name for path in (tmp_path / service).iterdir()} == names
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / service).iterdir()}
        assert modes == {0o400}
    vault = {path.name: path for path in (tmp_path / "vault").iterdir()}
    assert {path.stat().st_mode & 0o777 for path in vault.values()} == {0o600}
    random = [first[f"vault/{name}"] for name in vault if "." not in name and "pgpass" not in name]
    assert len(random) == len(set(random)) == 7
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in random)
    password = first["postgres/app_password"]
    assert first["shop/pgpass_app"] == f"*:*:*:oversold_app:{password}"
    again = make_secrets(tmp_path, users_folder, REDIS_ACL="production")
    assert again == first, "the second start changes nothing"
    for name in ("postgres", "redis"):  # strictly, as Python 3.13 and newer check them
        ca = ("-CAfile", str(tmp_path / "shop" / "ca.crt"))
        certificate = str(tmp_path / name / f"{name}.crt")
        command = ["openssl", "verify", "-x509_strict", *ca, "-verify_hostname", name, certificate]
        subprocess.run(command, check=True)


class PasswordListener:
    """A server that asks each client for its password in plain text, as PostgreSQL can."""

    AUTHENTICATION_CLEARTEXT = b"R" + (8).to_bytes(4) + (3).to_bytes(4)

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.password = b""

    def answer(self) -> None:
        client, _ = self.socket.accept()
        with client, client.makefile("rwb") as stream:
            stream.read(int.from_bytes(stream.read(4)) - 4)  # the startup message
            stream.write(self.AUTHENTICATION_CLEARTEXT)
            stream.flush()
            assert stream.read(1) == b"p"
            self.password = stream.read(int.from_bytes(stream.read(4)) - 4).rstrip(b"\0")


@pytest.mark.parametrize("password", ["plain", "pa:ss\\word", ":\\:", "\\\\", "&/*"])
def test_libpq_reads_any_password_from_the_file(tmp_path: Path, password: str) -> None:
    users_folder = tmp_path / "given"
    users_folder.mkdir()
    (users_folder / "app_password").write_text(password + "\n")
    secrets_made = make_secrets(tmp_path, users_folder)
    assert secrets_made["postgres/app_password"] == password
    listener = PasswordListener()
    thread = threading.Thread(target=listener.answer)
    thread.start()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(
            f"host=127.0.0.1 port={listener.port} user=oversold_app dbname=oversold",
            sslmode="disable",
            passfile=str(tmp_path / "shop/pgpass_app"),
            gssencmode="disable",
        )
    thread.join(10)
    listener.socket.close()
    assert listener.password == password.encode()
