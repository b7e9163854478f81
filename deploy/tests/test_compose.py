"""The Compose files: ports, limits, networks, health checks, timeouts, privileges and secrets.

The files are read as YAML. Only test_compose_accepts_the_files needs Docker.
"""

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
COMPOSE_FILES = ("docker-compose.yml", "deploy/docker/production.yml")


class ComposeLoader(yaml.SafeLoader):
    """A YAML loader that knows Compose's tags.

    It reads a list with the tag `!override` as a plain list, and any value with `!reset` as None.
    """


def _construct_list(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[Any]:
    """Return the list of a YAML node, without its tag."""
    return list(loader.construct_sequence(node))


ComposeLoader.add_constructor("!override", _construct_list)
ComposeLoader.add_constructor("!reset", lambda loader, node: None)
#: The services of the demo, and what production changes in them: service -> its definition.
SERVICES, PRODUCTION = (
    yaml.load((ROOT / name).read_text(), ComposeLoader)["services"] for name in COMPOSE_FILES
)
NGINX = (DOCKER / "nginx.conf").read_text()
#: Service of Compose -> the volume with the secrets that it mounts.
SECRETS_VOLUMES = {
    **dict.fromkeys(["web-a", "web-b", "settle"], "secrets-shop"),
    **dict.fromkeys(["locust", "locust-ui"], "secrets-locust"),
    **dict.fromkeys(["redis", *(f"redlock-{n}" for n in range(1, 6))], "secrets-redis"),
    "migrate": "secrets-migrate",
    "postgres": "secrets-postgres",
}
#: Folder that make_secrets.sh writes for a service -> the names of the files in it. A service gets
#: no password of another service, and the private key of its own certificate only.
SECRETS_BY_SERVICE = {
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


#: A password that the user has chosen. It has the form of the random passwords.
OWN_PASSWORD = "0a" * 32


def apply_defaults(text: object) -> str:
    """Return a text with the default of each variable, as Compose reads it if none is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(text))


@pytest.mark.parametrize("files", [COMPOSE_FILES[:1], COMPOSE_FILES])
def test_compose_accepts_the_files(files: tuple[str, ...]) -> None:
    """`docker compose config` succeeds with the demo's file, and with that of production added."""
    if not shutil.which("docker") or subprocess.run(["docker", "compose", "version"]).returncode:
        pytest.skip("docker compose is not installed")
    file_options = [f"--file={name}" for name in files]
    command = ["docker", "compose", *file_options, "config", "-q"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "SHOP_HOSTS": "x"}, check=True)


# --- what is open ---------------------------------------------------------------------------------


@pytest.mark.parametrize("services", [SERVICES, PRODUCTION], ids=["demo", "production"])
def test_only_nginx_and_locust_publish_a_port_and_only_on_loopback(
    services: dict[str, Any],
) -> None:
    ports_by_service = {
        name: service["ports"]
        for name, service in services.items()
        if service and "ports" in service
    }
    assert set(ports_by_service) <= {"nginx", "locust-ui"}
    for (port,) in ports_by_service.values():
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", apply_defaults(port))


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_few_privileges(name: str) -> None:
    """A service has a read-only file system and no capabilities, and does not run as root.

    The service `secrets` is an exception. It needs root, because it changes the owners of files. It
    has no network.
    """
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    if name == "secrets":
        assert (service["user"], service["cap_add"]) == ("0:0", ["CHOWN", "DAC_OVERRIDE"])
        assert service["network_mode"] == "none"
    else:
        assert "cap_add" not in service
        # A service with `build` uses the shop's own image, whose Dockerfile sets the user.
        assert "build" in service or re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])


def test_production_has_no_demo_and_verifies_its_servers() -> None:
    """In production there is no Locust, and nodes connect to PostgreSQL and Redis by TLS only."""
    for name in ("locust", "locust-ui", "locust-worker"):
        assert PRODUCTION[name] is None
    for name in ("web-a", "web-b", "migrate"):
        environment = PRODUCTION[name]["environment"]
        assert environment["SHOP_DEMO"] == "0"
        # With `:?`, Compose refuses to start without SHOP_HOSTS.
        assert environment["ALLOWED_HOSTS"].startswith("${SHOP_HOSTS:?")
        assert "sslmode=verify-full&sslrootcert=/run/oversold/ca.crt" in environment["DATABASE_URL"]
        assert "rediss://redis:6379/0?ssl_ca_certs=/run/oversold/ca.crt" in environment["REDIS_URL"]
    command = PRODUCTION["redis"]["command"]
    assert command[command.index("--port") + 1] == "0", "no port without TLS"


def test_environment_of_production_passes_check_deploy(tmp_path: Path) -> None:
    """With the Compose files and the secrets, ALLOWED_HOSTS is all that the operator has to set."""
    make_secrets(tmp_path)
    settings_of_node = {**SERVICES["web-a"]["environment"], **PRODUCTION["web-a"]["environment"]}
    environment = {
        name: apply_defaults(value).replace("/run/oversold", f"{tmp_path}/shop")
        for name, value in settings_of_node.items()
    }
    assert_check_deploy_passes(environment | {"ALLOWED_HOSTS": "shop.example.com"})


def assert_check_deploy_passes(environment: dict[str, str]) -> None:
    """Run `django check --deploy` with these environment variables, and assert that it passes."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    process = subprocess.run(
        [sys.executable, "-m", "django", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={"DJANGO_SETTINGS_MODULE": "shop.settings"} | inherited | environment,
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stderr) == (0, "")


# --- what a container may reach, and take ---------------------------------------------------------

#: The services that are only in the network `back`, from which the internet cannot be reached.
BACK_SERVICES = {"postgres", "redis", "zookeeper", *(f"redlock-{number}" for number in range(1, 6))}
#: The services in both networks, `back` and `front`. All other services are only in `front`.
SERVICES_IN_BOTH_NETWORKS = {"web-a", "web-b", "migrate", "settle"}


def test_only_the_shop_reaches_its_servers() -> None:
    """Only the shop is in both networks, so only the shop reaches servers such as PostgreSQL."""
    networks = yaml.load((ROOT / COMPOSE_FILES[0]).read_text(), ComposeLoader)["networks"]
    assert networks == {"front": None, "back": {"internal": True}}
    for name, service in SERVICES.items():
        if name == "secrets":
            assert "networks" not in service
        elif name in BACK_SERVICES:
            assert service["networks"] == ["back"]
        elif name in SERVICES_IN_BOTH_NETWORKS:
            assert service["networks"] == ["front", "back"]
        else:
            assert service["networks"] == ["front"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_has_limits(name: str) -> None:
    """The memory, the processes, the temporary files and the logs of a container are limited."""
    service = SERVICES[name]
    assert re.fullmatch("[12]g", service["mem_limit"])
    assert 0 < service["pids_limit"] <= 2048
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
    for folder in service["tmpfs"]:
        assert re.search(r"[:,]size=\d+m$", folder), folder


#: Service and stack -> the command of its health check, if the command requests a URL.
HEALTH_CHECKS = {
    f"{name}, {stack}": service["healthcheck"]["test"]
    for stack, services in (("demo", SERVICES), ("production", PRODUCTION))
    for name, service in services.items()
    if service and re.search("https?://", str(service.get("healthcheck")))
}


class HealthyHandler(BaseHTTPRequestHandler):
    """A handler that answers every GET with 200."""

    def do_GET(self) -> None:
        """Send the status 200 without a body."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize("name", HEALTH_CHECKS)
def test_health_check_ignores_a_proxy(name: str) -> None:
    """A health check reaches its server even if HTTP_PROXY is set to a proxy that does not answer.

    Docker may set HTTP_PROXY in a container.
    """
    dead_proxy = "http://127.0.0.1:1"
    environment = dict(os.environ)
    environment |= dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy"), dead_proxy)
    for variable in ("no_proxy", "NO_PROXY"):
        environment.pop(variable, None)
    with ThreadingHTTPServer(("127.0.0.1", 0), HealthyHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server_url = f"http://127.0.0.1:{server.server_port}"
        _, program, *arguments = [  # the first word of a health check is CMD
            re.sub(r"https?://127.0.0.1:\d+", server_url, word) for word in HEALTH_CHECKS[name]
        ]
        if program == "python":
            program = sys.executable
        process = subprocess.run([program, *arguments], env=environment)
        server.shutdown()
    assert process.returncode == 0


# --- who waits for whom ---------------------------------------------------------------------------


def test_nginx_closes_idle_connections_before_the_node_does() -> None:
    """If the node closed an idle connection first, nginx could send a purchase over it."""
    upstream = NGINX[NGINX.index("upstream") : NGINX.index("    server {")]
    (idle_seconds,) = re.findall(r"keepalive_timeout (\d+)s", upstream)
    assert int(idle_seconds) < gunicorn_conf.keepalive


def test_nginx_and_docker_wait_longer_than_a_node_answers() -> None:
    """A node finishes a request before nginx gives up on it, and stops before Docker kills it."""
    (read_timeout,) = re.findall(r"proxy_read_timeout (\d+)s", NGINX)
    assert int(read_timeout) > gunicorn_conf.timeout
    # With `non_idempotent`, nginx would send a purchase that has failed to the other node.
    assert re.findall(r"proxy_next_upstream (.+);", NGINX) == ["error timeout"]
    for name in ("web-a", "web-b", "nginx"):
        grace_seconds = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
        assert grace_seconds > gunicorn_conf.graceful_timeout


@pytest.mark.parametrize("services", [SERVICES, PRODUCTION], ids=["demo", "production"])
def test_servers_fit_four_nodes_and_evict_no_lock(
    services: dict[str, Any],
) -> None:
    """PostgreSQL has enough connections for four nodes, the most in docs/running.md.

    Redis never evicts a key, because the key may be a lock, and stores nothing on disk.
    """
    command = services["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--save"], options["--appendonly"]) == ("", "no")
    (max_connections,) = re.findall(
        r"max_connections=(\d+)", " ".join(services["postgres"]["command"])
    )
    (pool_size,) = re.findall(r"SHOP_DB_POOL=(\d+)", (ROOT / ".env.example").read_text())
    workers = int(apply_defaults(SERVICES["web-a"]["environment"]["WEB_WORKERS"]))
    connections_of_nodes = 4 * workers * int(pool_size)
    connections_of_migrations_and_psql = 20
    assert int(max_connections) >= connections_of_nodes + connections_of_migrations_and_psql


# --- who may do what ------------------------------------------------------------------------------


def read_rule(name: str) -> list[str]:
    """Return the words of the rule for the user `shop`: the last line of redis.NAME.acl."""
    return (DOCKER / f"redis.{name}.acl").read_text().splitlines()[-1].split()


def test_redis_acl_allows_the_commands_of_the_scripts() -> None:
    """The user `shop` may execute the commands in the Lua scripts of the locks and of the shop.

    It has neither all commands nor all keys. The commands are found in the text of the scripts,
    because a load test may not execute every command.
    """
    for name in ("demo", "production", "counter", "reserve"):
        rule = read_rule(name)
        assert rule[:5] == ["user", "shop", "on", "#PASSWORD_SHA256", "resetchannels"]
        assert {"resetkeys", "-@all"} <= set(rule)
        assert not {"~*", "&*", "+@all", "allkeys", "allchannels", "allcommands"} & set(rule)
        assert set(read_rule("production")) <= set(rule)
        assert "\nuser default off\n" in (DOCKER / f"redis.{name}.acl").read_text()
    documented_rule = re.search(
        r"`user locks on >PASSWORD (.*?)`", (ROOT / "locks/README.md").read_text()
    )
    assert documented_rule is not None
    assert set(documented_rule[1].split()) <= set(read_rule("production"))
    commands_used = {
        command
        for folder in ("locks", "shop")
        for script in (ROOT / folder).rglob("*.lua")
        for command in re.findall(r"redis\.p?call\('(\w+)'", script.read_text().lower())
    }
    assert {"get", "publish"} <= commands_used, "the pattern finds no commands"
    commands_of_a_cluster = {"spublish"}  # the Redis of the compose stack is no cluster
    # The rule allows one subcommand of PUBSUB. In the scripts the pattern finds only `pubsub`.
    assert "+pubsub|numsub" in read_rule("demo")
    allowed_commands = {word.removeprefix("+") for word in read_rule("demo")} | {"pubsub"}
    assert commands_used - commands_of_a_cluster <= allowed_commands


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_mounts_its_own_secrets_and_no_others(name: str) -> None:
    """A service can read its secrets and not write them. They are files, not variables.

    The service `secrets` writes the secrets of all other services.
    """
    modes_by_volume = {}
    for volume in SERVICES[name].get("volumes", []):
        source, _, *modes = volume.split(":")  # source:folder, or source:folder:mode
        if re.match("vault|secrets", source):
            modes_by_volume[source] = modes
    if name == "secrets":
        secrets_volumes = {f"secrets-{service}" for service in SECRETS_BY_SERVICE}
        assert set(modes_by_volume) == secrets_volumes | {"vault"}
    elif name in SECRETS_VOLUMES:
        assert modes_by_volume == {SECRETS_VOLUMES[name]: ["ro"]}
    else:
        assert modes_by_volume == {}
    for variable, value in SERVICES[name].get("environment", {}).items():
        if re.search("SECRET|PASSWORD|TOKEN", variable) and not variable.endswith("_TTL"):
            assert variable.endswith("_FILE")
            assert value == "" or value.startswith("/run/oversold/")


def make_secrets(
    folder: Path, users_folder: Path | None = None, **environment: str
) -> dict[str, str]:
    """Run make_secrets.sh, and return the text of each file that it wrote, by the file's path.

    The paths are relative to `folder`.

    users_folder  a folder with secrets that the user has chosen; None: all secrets are random
    """
    command = [DOCKER / "make_secrets.sh", folder]
    if users_folder is not None:
        command.append(users_folder)
    subprocess.run(command, check=True, env={**os.environ, **environment})
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_each_service_gets_its_secrets_and_they_stay_the_same(tmp_path: Path) -> None:
    """make_secrets.sh creates random secrets in `vault`, and copies them to the services' folders.

    Only the owner of a file can read it. A secret that the user has chosen is not replaced. A
    second run changes nothing.
    """
    users_folder = tmp_path / "chosen"
    users_folder.mkdir()
    (users_folder / "redis_password").write_text(OWN_PASSWORD + "\n")
    texts = make_secrets(tmp_path, users_folder, REDIS_ACL="production")
    assert texts["shop/redis_password"] == OWN_PASSWORD
    assert f"#{sha256(OWN_PASSWORD.encode()).hexdigest()} " in texts["redis/users.acl"]
    assert "~stock:*" not in texts["redis/users.acl"], "production has no stock in Redis"
    for service, names in SECRETS_BY_SERVICE.items():
        assert {path.name for path in (tmp_path / service).iterdir()} == names
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / service).iterdir()}
        assert modes == {0o400}
    vault = {path.name: path for path in (tmp_path / "vault").iterdir()}
    assert {path.stat().st_mode & 0o777 for path in vault.values()} == {0o600}
    # Files with a dot in their names are certificates and keys. Those with `pgpass` are made from
    # the passwords. All other files have a random secret.
    secrets = [texts[f"vault/{name}"] for name in vault if "." not in name and "pgpass" not in name]
    assert len(secrets) == len(set(secrets)) == 7, "Django's key, two tokens and four passwords"
    assert all(re.fullmatch("[0-9a-f]{64}", secret) for secret in secrets)
    password = texts["postgres/app_password"]
    assert texts["shop/pgpass_app"] == f"*:*:*:oversold_app:{password}"
    texts_of_second_run = make_secrets(tmp_path, users_folder, REDIS_ACL="production")
    assert texts_of_second_run == texts
    # Python 3.13 and newer check certificates strictly, so -x509_strict must accept these.
    for name in ("postgres", "redis"):
        ca = ("-CAfile", str(tmp_path / "shop" / "ca.crt"))
        certificate = str(tmp_path / name / f"{name}.crt")
        command = ["openssl", "verify", "-x509_strict", *ca, "-verify_hostname", name, certificate]
        subprocess.run(command, check=True)


class PasswordListener:
    """A server that speaks PostgreSQL's protocol until it has received a client's password.

    It requests the password in plain text. Each message of the protocol has a length of four bytes,
    which counts itself. Before the length there is a type of one byte, except in the first message.
    """

    #: The request of the password: its type, its length, and the code for plain text.
    AUTHENTICATION_CLEARTEXT = b"R" + (8).to_bytes(4) + (3).to_bytes(4)

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.password = b""

    def receive_password(self) -> None:
        """Accept one client, store its password in `password`, and close the connection."""
        client, _ = self.socket.accept()
        with client, client.makefile("rwb") as stream:
            startup_length = int.from_bytes(stream.read(4))
            stream.read(startup_length - 4)
            stream.write(self.AUTHENTICATION_CLEARTEXT)
            stream.flush()
            assert stream.read(1) == b"p"  # the type of the message with the password
            password_length = int.from_bytes(stream.read(4))
            self.password = stream.read(password_length - 4).rstrip(b"\0")


@pytest.mark.parametrize("password", ["plain", "pa:ss\\word", ":\\:", "\\\\", "&/*"])
def test_libpq_reads_any_password_from_the_file(tmp_path: Path, password: str) -> None:
    """make_secrets.sh escapes a password in the file pgpass_app, which libpq reads.

    psycopg, which uses libpq, sends the password to a listener in place of PostgreSQL.
    """
    users_folder = tmp_path / "chosen"
    users_folder.mkdir()
    (users_folder / "app_password").write_text(password + "\n")
    secrets = make_secrets(tmp_path, users_folder)
    assert secrets["postgres/app_password"] == password
    listener = PasswordListener()
    thread = threading.Thread(target=listener.receive_password)
    thread.start()
    with pytest.raises(psycopg.OperationalError):  # the listener closes the connection
        psycopg.connect(
            f"host=127.0.0.1 port={listener.port} user=oversold_app dbname=oversold",
            sslmode="disable",
            passfile=str(tmp_path / "shop/pgpass_app"),
            gssencmode="disable",
        )
    thread.join(10)
    listener.socket.close()
    assert listener.password == password.encode()
